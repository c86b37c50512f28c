// One game: its token, its turns, the turn that is being drawn. It survives a reload and a restart of the server.

const TOKEN = "animegamer.token", PENDING = "animegamer.pending";
const ENDED = ["unknown_session", "session_closed", "bundle_mismatch", "wrong_token"];
const WAIT = ["starting", "draining", "degraded"];
const RETRY_MS = 1000;

export class Game {
  /**
   * on: functions by what happens. opened({turns, character, lost}), listed(turns), event(message) with `shownTurn`,
   * ended(error or null), waits(error).
   */
  constructor(connection, on) {
    this.connection = connection;
    this.on = on;
    this.session = null;
    this.stop = null;
  }

  get header() {
    return { session: this.session };
  }

  get pending() {
    return JSON.parse(localStorage.getItem(PENDING));
  }

  /** Go on with the kept game, or begin one. */
  async open() {
    const token = localStorage.getItem(TOKEN);
    this.halt();
    let opened, lost = false;
    try {
      opened = await this.connection.ask("open", token ? { token } : {});
    } catch (error) {
      if (!token || !ENDED.includes(error.code)) return this.later(error);
      this.forget();
      lost = true;
      try {
        opened = await this.connection.ask("open");
      } catch (second) {
        return this.later(second);
      }
    }
    this.session = opened.session;
    this.token = opened.fields.token;
    localStorage.setItem(TOKEN, this.token);
    this.on.opened({ ...opened.fields, lost });
    if (opened.fields.turns) await this.list();
    if (this.pending) this.ask(this.pending);
    else if (opened.fields.turns) this.replay(opened.fields.turns);
  }

  later(error) {
    this.on.waits(error);
    this.timer = setTimeout(() => this.open(), 2 * RETRY_MS);
  }

  async list() {
    const listed = await this.connection.ask("list", { token: this.token }, this.header).catch(() => null);
    if (listed) this.on.listed(listed.fields.turns);
  }

  /** Play a turn. It is noted first, so that a page that is loaded again asks for the same one. */
  play(instruction) {
    const turn = { instruction, turn_id: newId() };
    localStorage.setItem(PENDING, JSON.stringify(turn));
    this.ask(turn);
  }

  ask(turn) {
    this.follow("turn", { ...turn, token: this.token }, this.header, () => this.ask(turn));
  }

  /** Show a finished turn again. */
  replay(turn) {
    this.follow("replay", { token: this.token }, { ...this.header, turn }, null);
  }

  follow(type, fields, header, again) {
    this.halt();
    let next = 0;
    const listen = (kind, content, head) => {
      this.stop = this.connection.listen(kind, content, head, (message) => {
        if (message.type === "error") return this.failed(message.fields, again);
        if (message.seq === undefined) return this.on.event(message);
        if (message.seq > next) { // frames were dropped because this browser was slow: ask for what is missing
          this.stop();
          return listen("replay", { token: this.token, after_seq: next - 1 }, { ...this.header, turn: message.turn });
        }
        if (message.seq < next) return;
        next += 1;
        this.on.event(message);
        if (message.type === "done") this.end(null);
      });
    };
    listen(type, fields, header);
  }

  failed(error, again) {
    if (again && WAIT.includes(error.code)) {
      this.on.waits(error);
      this.timer = setTimeout(again, RETRY_MS);
    } else this.end(error);
  }

  end(error) {
    this.halt();
    localStorage.removeItem(PENDING);
    this.on.ended(error);
  }

  halt() {
    clearTimeout(this.timer);
    this.stop?.();
    this.stop = null;
  }

  cancel() {
    if (this.pending) this.connection.ask("cancel", { token: this.token }, this.header).catch(() => {});
  }

  async rewind(turn) {
    const rewound = await this.connection.ask("rewind", { token: this.token, turn }, this.header);
    this.on.opened({ ...rewound.fields, lost: false });
    if (turn) await this.list();
  }

  /** End this game and begin another. */
  async fresh() {
    this.halt();
    await this.connection.ask("close", { token: this.token }, this.header).catch(() => {});
    this.forget();
    await this.open();
  }

  forget() {
    for (const key of [TOKEN, PENDING]) localStorage.removeItem(key);
  }
}

/** A random id; `crypto.randomUUID` is there only on secure pages. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (one) => one.toString(16).padStart(2, "0")).join("");
}
