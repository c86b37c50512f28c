using System.Threading.Tasks;
using NUnit.Framework;
using UnityEngine;

namespace AnimeGamer.Tests
{
    /// <summary>What can be tried in an editor without a server. The rest is run outside Unity, against live servers.</summary>
    public sealed class WithoutServerTests
    {
        [Test]
        public void ACallWithoutAServerEndsWithATextThatSaysWhatToDo()
        {
            using (var client = new AnimeGamerClient(new ClientOptions { Address = "tcp://127.0.0.1:1", TimeoutSeconds = 0.5 }))
            {
                Task<Welcome> call = client.ConnectAsync();
                Assert.IsTrue(((System.IAsyncResult)call).AsyncWaitHandle.WaitOne(10000));
                var error = (AnimeGamerException)call.Exception.InnerException;
                Assert.AreEqual("timed_out", error.Code);
                Assert.IsTrue(error.Do.Contains("animegamer-rt serve"));
            }
        }

        [Test]
        public void ClosingEverythingLeavesNoClient()
        {
            var client = new AnimeGamerClient(new ClientOptions());
            Task<Game> call = client.OpenAsync();
            Lifetime.CloseAll();
            Assert.AreEqual(0, LiveClients.Count);
            Assert.AreEqual("closed", ((AnimeGamerException)call.Exception.InnerException).Code);
        }

        [Test]
        public void ASavedGameKeepsItsTokenAndCanBeCleared()
        {
            SavedGame saved = ScriptableObject.CreateInstance<SavedGame>();
            saved.Token = "secret";
            Assert.AreEqual("secret", saved.Token);
            saved.Clear();
            Assert.AreEqual("", saved.Token);
            Object.DestroyImmediate(saved);
        }
    }
}
