using UnrealBuildTool;

public class AnimeGamer : ModuleRules
{
    public AnimeGamer(ReadOnlyTargetRules Target) : base(Target)
    {
        PCHUsage = PCHUsageMode.UseExplicitOrSharedPCHs;
        PublicDependencyModuleNames.AddRange(new string[] { "Core", "CoreUObject", "Engine", "DeveloperSettings" });
        PrivateDependencyModuleNames.AddRange(new string[] { "AnimeGamerNative", "RenderCore", "RHI" });
    }
}
