using System.IO;
using UnrealBuildTool;

// client/native of the repository, compiled as a module of its own: its exceptions stay behind its C interface.
public class AnimeGamerNative : ModuleRules
{
    public AnimeGamerNative(ReadOnlyTargetRules Target) : base(Target)
    {
        if (!File.Exists(Path.Combine(ModuleDirectory, "Public", "animegamer.h")))
        {
            throw new BuildException("AnimeGamer: the native client's sources are not in {0}; make the plugin with " +
                "client/unreal/pack.py YOUR_PROJECT/Plugins", ModuleDirectory);
        }
        PCHUsage = PCHUsageMode.NoPCHs;
        bUseUnity = false;
        bEnableExceptions = true;
        PublicDependencyModuleNames.Add("Core");
        if (Target.Platform == UnrealTargetPlatform.Win64)
        {
            PublicSystemLibraries.Add("ws2_32.lib");
            if (Target.LinkType == TargetLinkType.Modular)
            {
                PublicDefinitions.Add("ANIMEGAMER_SHARED=1");
                PrivateDefinitions.Add("ANIMEGAMER_BUILD=1");
            }
        }
    }
}
