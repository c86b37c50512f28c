using System;
using System.Diagnostics;
using System.IO;
using System.Text;
using System.Threading.Tasks;

namespace AnimeGamer.EditorTools
{
    /// <summary>Finds out why nothing is played: asks the server, then the program's own doctor.</summary>
    public static class Doctor
    {
        const int LimitMs = 120000;

        /// <summary>A report for a person. Does not throw.</summary>
        public static async Task<string> RunAsync(string address, string password, string command)
        {
            var report = new StringBuilder();
            try
            {
                await AskServer(new ClientOptions { Address = address, Password = password, TimeoutSeconds = 5 }, report);
            }
            catch (AnimeGamerException error)
            {
                report.AppendLine("server: " + error.Text);
                if (error.Do != null) report.AppendLine("  do: " + error.Do);
            }
            report.AppendLine().AppendLine("$ " + command + " doctor");
            report.Append(await Task.Run(() => RunProgram(command)));
            return report.ToString();
        }

        static async Task AskServer(ClientOptions options, StringBuilder report)
        {
            using (var client = new AnimeGamerClient(options))
            {
                Welcome welcome = await client.ConnectAsync();
                report.AppendLine("server: " + welcome.Server + " at " + options.Address + ", protocol " + welcome.Protocol + ", " + welcome.State);
                report.AppendLine("bundle: " + welcome.Bundle + ", " + welcome.Width + " x " + welcome.Height + ", plan " + welcome.Plan);
                if (welcome.RandomWeights) report.AppendLine("pictures: noise, as this bundle has no trained weights");
            }
        }

        static string RunProgram(string command)
        {
            try
            {
                var start = new ProcessStartInfo(command, "doctor")
                    { UseShellExecute = false, CreateNoWindow = true, RedirectStandardOutput = true };
                using (Process process = Process.Start(start))
                {
                    Task<string> said = process.StandardOutput.ReadToEndAsync();
                    if (process.WaitForExit(LimitMs)) return said.Result;
                    process.Kill();
                    return "it did not end within " + LimitMs / 1000 + " s\n";
                }
            }
            catch (Exception error) when (error is System.ComponentModel.Win32Exception || error is IOException)
            {
                return "cannot start it: " + error.Message + "\n  do: pip install animegamer-rt, or give its whole path\n";
            }
        }
    }
}
