// The parts of Unreal's build tool that the plugin's Build.cs files use, so that they can be compiled.
using System;
using System.Collections.Generic;

namespace UnrealBuildTool
{
    public enum UnrealTargetPlatform { Win64, Linux, LinuxArm64, Mac }
    public enum TargetLinkType { Modular, Monolithic }

    public class ReadOnlyTargetRules
    {
        public UnrealTargetPlatform Platform = UnrealTargetPlatform.Linux;
        public TargetLinkType LinkType = TargetLinkType.Modular;
    }

    public class BuildException : Exception
    {
        public BuildException(string Format, params object[] Arguments) : base(string.Format(Format, Arguments)) { }
    }

    public class ModuleRules
    {
        public enum PCHUsageMode { NoPCHs, UseExplicitOrSharedPCHs }

        public readonly ReadOnlyTargetRules Target;
        public string ModuleDirectory = "";
        public PCHUsageMode PCHUsage;
        public bool bUseUnity, bEnableExceptions;
        public List<string> PublicDependencyModuleNames = new List<string>(), PrivateDependencyModuleNames = new List<string>(),
            PublicSystemLibraries = new List<string>(), PublicDefinitions = new List<string>(), PrivateDefinitions = new List<string>();

        public ModuleRules(ReadOnlyTargetRules Target) { this.Target = Target; }
    }
}
