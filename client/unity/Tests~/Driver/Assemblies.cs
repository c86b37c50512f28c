using System;
using System.IO;
using System.Reflection;
using System.Security;
using System.Text;

namespace AnimeGamer.Driver
{
    /// <summary>What IL2CPP cannot build is in none of these assemblies.</summary>
    static class Assemblies
    {
        /// <summary>arguments: "assemblies", then the files.</summary>
        public static void Check(string[] arguments)
        {
            for (int i = 1; i < arguments.Length; i++)
            {
                Assembly assembly = Assembly.LoadFrom(arguments[i]);
                Help.Check(assembly.GetModules()[0].GetCustomAttributes(typeof(UnverifiableCodeAttribute), false).Length == 0,
                    arguments[i] + " has no unsafe code");
                // Names that the metadata refers to stand there as they are.
                string bytes = Encoding.ASCII.GetString(File.ReadAllBytes(arguments[i]));
                foreach (string name in new[] { "System.Reflection.Emit", "Microsoft.CSharp", "CallSite", "DynamicInvoke", "MakeGenericType" })
                    Help.Check(bytes.IndexOf(name, StringComparison.Ordinal) < 0, arguments[i] + " does not use " + name);
                Console.WriteLine(Path.GetFileName(arguments[i]) + " " + assembly.GetTypes().Length + " types");
            }
        }
    }
}
