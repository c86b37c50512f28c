// Stands in for the parts of Unreal's build tool that the plugin's Build.cs files use. rules.exe MODULE_FOLDER PLATFORM says what
// AnimeGamerNative.Build.cs asks for, a line each.
using System;
using System.Collections.Generic;

namespace UnrealBuildTool
{
    public enum UnrealTargetPlatform { Win64, Linux, LinuxArm64, Mac }
    public enum TargetLinkType { Modular, Monolithic }

    public class ReadOnlyTargetRules
    {
        public UnrealTargetPlatform Platform;
        public TargetLinkType LinkType = TargetLinkType.Modular;
    }

    public class BuildException : Exception
    {
        public BuildException(string Format, params object[] Arguments) : base(string.Format(Format, Arguments)) { }
    }

    public class ModuleRules
    {
        public enum PCHUsageMode { NoPCHs, UseExplicitOrSharedPCHs }

        public static string Folder;
        public readonly ReadOnlyTargetRules Target;
        public string ModuleDirectory { get { return Folder; } }
        public PCHUsageMode PCHUsage;
        public bool bUseUnity, bEnableExceptions;
        public List<string> PublicDependencyModuleNames = new List<string>(), PrivateDependencyModuleNames = new List<string>(),
            PublicSystemIncludePaths = new List<string>(), PublicSystemLibraries = new List<string>(),
            PublicAdditionalLibraries = new List<string>(), PublicDefinitions = new List<string>(),
            PrivateDefinitions = new List<string>(), ExternalDependencies = new List<string>();

        public ModuleRules(ReadOnlyTargetRules Target) { this.Target = Target; }
    }

    public static class Program
    {
        public static int Main(string[] arguments)
        {
            ModuleRules.Folder = arguments[0];
            var target = new ReadOnlyTargetRules
            {
                Platform = (UnrealTargetPlatform)Enum.Parse(typeof(UnrealTargetPlatform), arguments[1])
            };
            try
            {
                new AnimeGamer(target);
                var rules = new AnimeGamerNative(target);
                rules.PublicSystemIncludePaths.ForEach(path => Console.WriteLine("include " + path));
                rules.PublicAdditionalLibraries.ForEach(library => Console.WriteLine("library " + library));
                rules.PrivateDefinitions.ForEach(definition => Console.WriteLine("define " + definition));
                return 0;
            }
            catch (BuildException error)
            {
                Console.WriteLine(error.Message);
                return 1;
            }
        }
    }
}
