// Plays one turn without Unity: mono turn.exe [ADDRESS [INSTRUCTION]]
using System;
using System.Threading;
using AnimeGamer;

static class Program
{
    static int Main(string[] arguments)
    {
        try
        {
            Play(arguments);
            return 0;
        }
        catch (AnimeGamerException error)
        {
            Console.Error.WriteLine("error: " + error.Message);  // what happened; what to do
            return 1;
        }
    }

    static void Play(string[] arguments)
    {
        string address = arguments.Length > 0 ? arguments[0] : "tcp://127.0.0.1:5570";
        string instruction = arguments.Length > 1 ? arguments[1] : "Mirel waves gently in the city by day.";
        Console.Error.WriteLine("connecting to " + address + ", for 30 s at most");
        using (var client = new AnimeGamerClient(new ClientOptions { Address = address }))
        {
            Turn turn = client.OpenAsync().GetAwaiter().GetResult().Say(instruction);
            bool over = false;
            while (!over)  // a game's loop: draw, read what has come, wait for the next tick
            {
                while (turn.TryRead(out TurnEvent next))
                {
                    if (next.Kind == TurnEventKind.State) Console.WriteLine("stamina " + next.State.Shown.Stamina);
                    if (next.Kind == TurnEventKind.Frame) next.Frame.Release();  // show its Data before
                    if (next.Kind == TurnEventKind.Done) Console.WriteLine("turn " + next.Turn + " took " + next.Done.TotalSeconds + " s");
                    if (next.Kind == TurnEventKind.Error) throw next.Error;
                    over = next.Kind == TurnEventKind.Done;
                }
                Thread.Sleep(16);
            }
        }
    }
}
