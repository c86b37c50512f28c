// In place of a server: games that were recorded from one, a tree of turns. The page plays them as it plays a server's.
// `make demo` puts this file where the page looks for its connection. Knows messages; nothing of the page.

const GAMES = "animegamer.demo", START = { stamina: 50, social: 50, entertainment: 50 };

export class Connection {
  recorded = true;
  up = false;

  constructor(onUp, onDown) {
    this.onDown = onDown;
    this.games = JSON.parse(localStorage.getItem(GAMES) ?? "{}");
    fetch("recorded.json").then((answer) => answer.json()).then((recorded) => {
      this.turns = recorded.turns;
      for (const [name, { path }] of Object.entries(this.games)) if (path.some((one) => !this.turns[one])) delete this.games[name];
      this.up = true;
      onUp(recorded.welcome);
    }, onDown);
  }

  /** Call `then` with the sentences that were recorded after a turn of a game. */
  offer(session, turn, then) {
    const last = this.games[session].path[turn - 1] ?? null;
    then(this.turns.filter((one) => one.after === last).map((one) => one.instruction));
  }

  async form() {}

  async ask(type, fields = {}, header = {}) {
    const game = this.games[header.session];
    if (type === "open") {
      const found = Object.keys(this.games).find((one) => this.games[one].token === fields.token);
      if (fields.token && !found) throw { code: "unknown_session" };
      return this.opened(found ?? this.begin([]));
    }
    if (type === "cancel") return this.stop?.();
    if (!game) throw { code: "unknown_session" };
    if (type === "list") return { fields: { turns: game.path.map((one, at) => ({ turn: at + 1, instruction: this.turns[one].instruction })) } };
    if (type === "branch") return this.opened(this.begin(game.path.slice(0, fields.turn)));
    if (type === "rewind") game.path.length = fields.turn;
    if (type === "close") delete this.games[header.session];
    this.keep();
    return type === "rewind" ? this.opened(header.session) : { fields: {} };
  }

  begin(path) {
    const name = `g${Math.random().toString(36).slice(2)}`;
    this.games[name] = { token: name, path };
    this.keep();
    return name;
  }

  keep() {
    localStorage.setItem(GAMES, JSON.stringify(this.games));
  }

  opened(session) {
    const { token, path } = this.games[session], last = this.turns[path.at(-1)];
    const character = last?.events.find(([, one]) => one.type === "state")[1].fields.character ?? START;
    return { session, fields: { token, turns: path.length, character } };
  }

  listen(type, fields, header, handler) {
    const { path } = this.games[header.session], last = path.at(-1) ?? null;
    const timers = [], at = (seconds, message) => timers.push(setTimeout(() => handler(message), 1000 * seconds));
    const index = type === "replay" ? path[header.turn - 1] : this.turns.findIndex((one) => one.after === last && one.instruction === fields.instruction);
    const turn = type === "replay" ? header.turn : path.length + 1;
    const stop = (this.stop = () => timers.forEach(clearTimeout));
    if (!this.turns[index]) at(0, { type: "error", fields: { code: "instruction" } });
    else this.pictures(index).then((pictures) => {
      const { events } = this.turns[index];
      for (const [seconds, message] of events) {
        const buffer = message.type === "frame" ? pictures[message.fields.index].data : undefined;
        at(type === "replay" ? seconds / 4 : seconds, { ...message, turn, buffer });
      }
      if (type === "turn") timers.push(setTimeout(() => (path.push(index), this.keep()), 1000 * events.at(-1)[0] - 1));
      this.stop = () => (stop(), type === "turn" && handler({ type: "error", fields: { code: "cancelled" } }));
    });
    return stop;
  }

  /** The frames of a recorded turn, which lie below one another in one file. */
  async pictures(index) {
    const strip = await createImageBitmap(await (await fetch(`turn-${index}.jpg`)).blob());
    const count = this.turns[index].events.filter(([, one]) => one.type === "frame").length, height = strip.height / count;
    const canvas = new OffscreenCanvas(strip.width, strip.height), context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(strip, 0, 0);
    return Array.from({ length: count }, (_, at) => context.getImageData(0, at * height, strip.width, height));
  }
}
