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
        UseSodium();
    }

    // Keys, for servers on other machines, if the developer has put libsodium into the plugin: README.md, "A server with keys".
    private void UseSodium()
    {
        string folder = Path.GetFullPath(Path.Combine(ModuleDirectory, "..", "ThirdParty", "libsodium"));
        if (!Directory.Exists(folder))
        {
            return;
        }
        string include = Path.Combine(folder, "include");
        string library = Path.Combine(folder, "lib", Target.Platform.ToString(),
            Target.Platform == UnrealTargetPlatform.Win64 ? "libsodium.lib" : "libsodium.a");
        foreach (string file in new string[] { Path.Combine(include, "sodium.h"), library })
        {
            if (!File.Exists(file))
            {
                throw new BuildException("AnimeGamer: {0} is missing; put it there, or remove {1} to build without keys", file, folder);
            }
            ExternalDependencies.Add(file);
        }
        PublicSystemIncludePaths.Add(include);
        PublicAdditionalLibraries.Add(library);
        PrivateDefinitions.Add("ANIMEGAMER_CURVE=1");
        PrivateDefinitions.Add("SODIUM_STATIC=1");
    }
}
