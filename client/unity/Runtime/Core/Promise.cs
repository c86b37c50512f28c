using System;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>The source of a Task. No code of the game that waits for it runs within Set, Fail or Cancel, which are called
    /// under the client's lock.</summary>
    sealed class Promise<T>
    {
#if !UNITY_WEBGL || UNITY_EDITOR
        readonly TaskCompletionSource<T> _source = new TaskCompletionSource<T>(TaskCreationOptions.RunContinuationsAsynchronously);

        static void Later(Action end) { end(); }
#else
        readonly TaskCompletionSource<T> _source = new TaskCompletionSource<T>();

        // A browser has no thread pool, where Task.WhenAll and others would go on; the main thread has Unity's queue.
        static void Later(Action end) { SynchronizationContext.Current.Post(_ => end(), null); }
#endif

        public Task<T> Task { get { return _source.Task; } }

        public void Set(T value) { Later(() => _source.TrySetResult(value)); }

        public void Cancel(CancellationToken cancel) { Later(() => _source.TrySetCanceled(cancel)); }

        public void Fail(Exception error)
        {
            Later(() =>
            {
                _source.TrySetException(error);
                AggregateException seen = _source.Task.Exception;  // a result that nobody awaits is no fault of the program
            });
        }
    }
}
