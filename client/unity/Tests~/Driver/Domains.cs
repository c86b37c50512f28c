namespace AnimeGamer.Driver
{
    static class Domains
    {
        public static void Run(string address, string deadAddress) { }
    }
}
