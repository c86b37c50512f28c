// One WebSocket to the gateway: requests and their answers, pings, and connecting again. Knows nothing of games.

const SUBPROTOCOL = "animegamer.v1.json";
const LOOK_MS = 5_000, PING_LOOKS = 4, SILENT_LOOKS = 7; // looks, not time: a page that was frozen did not wait
const FIRST_WAIT_MS = 400, LONGEST_WAIT_MS = 5_000, OFFLINE_MS = 2_000;
const PICTURES = { codec: "jpeg", jpeg_quality: 95 };

export class Connection {
  /** onUp(welcome), onDown(): each time the connection is there or gone. onOffer(message): other turns are ready. */
  constructor(onUp, onDown, onOffer) {
    this.onUp = onUp;
    this.onDown = onDown;
    this.onOffer = onOffer;
    this.handlers = new Map();
    this.count = 0;
    this.wait = FIRST_WAIT_MS;
    addEventListener("online", () => this.retry());
    addEventListener("offline", () => this.doubt());
    document.addEventListener("visibilitychange", () => document.hidden || this.retry());
    this.connect();
  }

  get up() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  connect() {
    clearTimeout(this.again);
    this.again = null;
    const address = new URL("ws", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    address.search = address.hash = "";
    const socket = (this.socket = new WebSocket(address, SUBPROTOCOL));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.greet();
    socket.onmessage = (event) => this.received(event.data);
    socket.onclose = () => this.lost(socket);
  }

  /** Connect now, if this waits for the next try. */
  retry() {
    if (this.again) this.connect();
  }

  greet() {
    this.silentLooks = 0;
    this.pings = setInterval(() => this.look(), LOOK_MS);
    this.form().then(({ fields }) => {
      this.wait = FIRST_WAIT_MS;
      this.onUp(fields);
    }).catch(() => this.socket.close());
  }

  /** Ask for pictures in another form, or in the usual one, from the next turn on. */
  form(fields = PICTURES) {
    return this.ask("hello", { versions: [1], minor: 3, client: "web page", ...fields });
  }

  /** The browser says that it is offline. A server on this machine answers all the same. */
  doubt() {
    const { socket } = this;
    this.silentLooks += 1;
    this.send("ping", {}, {});
    setTimeout(() => this.silentLooks && this.lost(socket), OFFLINE_MS);
  }

  look() {
    this.silentLooks += 1;
    if (this.silentLooks > SILENT_LOOKS) this.lost(this.socket);
    else if (this.silentLooks > PING_LOOKS) this.send("ping", {}, {});
  }

  lost(socket) {
    if (socket !== this.socket || this.again) return;
    socket.onmessage = socket.onclose = null;
    socket.close();
    clearInterval(this.pings);
    this.handlers.clear();
    this.again = setTimeout(() => this.connect(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT_MS);
    this.onDown();
    // A login that has ended: the page's address now asks for the password.
    fetch("login").then(({ status }) => status === 403 && location.reload()).catch(() => {});
  }

  received(data) {
    this.silentLooks = 0;
    const message = typeof data === "string" ? JSON.parse(data) : behindHeader(data);
    if (message.type === "error" && message.fields.code === "hello_first") return this.socket.close();
    if (message.type === "offer") return this.onOffer(message);
    this.handlers.get(message.parent)?.(message);
  }

  send(type, fields, header, handler, buffer) {
    const id = `w${++this.count}`;
    if (handler) this.handlers.set(id, handler);
    const text = JSON.stringify({ type, id, ...header, fields });
    if (this.up) this.socket.send(buffer ? beforeBuffer(new TextEncoder().encode(text), buffer) : text);
    return id;
  }

  /** Send a request; resolves with its one answer, rejects with the fields of an error. */
  ask(type, fields = {}, header = {}, buffer = null) {
    return new Promise((resolve, reject) => {
      const id = this.send(type, fields, header, (message) => {
        this.handlers.delete(id);
        message.type === "error" ? reject(message.fields) : resolve(message);
      }, buffer);
    });
  }

  /** Send a request that many messages answer; returns a function that stops listening. */
  listen(type, fields, header, handler) {
    const id = this.send(type, fields, header, handler);
    return () => this.handlers.delete(id);
  }
}

/** The same the other way: a request with a picture. */
function beforeBuffer(header, buffer) {
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, header.length);
  return new Blob([length, header, buffer]);
}

/** A binary message: 4 bytes of length, the header, then the picture's bytes. */
function behindHeader(data) {
  const length = new DataView(data).getUint32(0);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  return { ...header, buffer: new Uint8Array(data, 4 + length) };
}
