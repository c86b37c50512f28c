// The browser's WebSocket for BrowserSocket.cs, which asks at each update of the game what has come.
var AnimeGamerLibrary = {
  $AnimeGamerSockets: { count: 0, open: {} },

  AnimeGamerOpen: function (address, subprotocol) {
    var number = ++AnimeGamerSockets.count;
    var socket = { state: 0, received: [] };
    AnimeGamerSockets.open[number] = socket;
    try {
      socket.web = new WebSocket(UTF8ToString(address), UTF8ToString(subprotocol));
    } catch (refused) { // as from a page of https to ws:
      console.error(refused);
      socket.state = 1006;
      return number;
    }
    socket.web.binaryType = "arraybuffer";
    socket.web.onopen = function () { socket.state = 1; };
    socket.web.onmessage = function (event) {
      // A text message holds no header that could be read: it counts as an empty one.
      socket.received.push(typeof event.data === "string" ? new Uint8Array(0) : new Uint8Array(event.data));
    };
    socket.web.onclose = function (event) { socket.state = event.code; };
    return number;
  },

  AnimeGamerState: function (number) {
    return AnimeGamerSockets.open[number].state;
  },

  AnimeGamerSend: function (number, message, length) {
    // A copy: the heap may move, and may be shared, of which WebSockets send nothing.
    AnimeGamerSockets.open[number].web.send(HEAPU8.slice(message, message + length));
  },

  AnimeGamerWaiting: function (number) {
    var received = AnimeGamerSockets.open[number].received;
    return received.length > 0 ? received[0].length : -1;
  },

  AnimeGamerCopy: function (number, from, into, count) {
    HEAPU8.set(AnimeGamerSockets.open[number].received[0].subarray(from, from + count), into);
  },

  AnimeGamerDrop: function (number) {
    AnimeGamerSockets.open[number].received.shift();
  },

  AnimeGamerClose: function (number) {
    var web = AnimeGamerSockets.open[number].web;
    delete AnimeGamerSockets.open[number];
    if (!web) return;
    web.onopen = web.onmessage = web.onclose = null;
    web.close();
  },
};

autoAddDeps(AnimeGamerLibrary, "$AnimeGamerSockets");
mergeInto(LibraryManager.library, AnimeGamerLibrary);
