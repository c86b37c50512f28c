// One game: its token, its turns, the turn that is being drawn. It survives a reload and a restart of the server.

import { keep, kept, keptValue } from "./kept.js";

const TOKEN = "animegamer.token", PENDING = "animegamer.pending", TAB = "animegamer.tab";
const ENDED = ["unknown_session", "session_closed", "bundle_mismatch", "engines_mismatch", "wrong_token"];
const WAIT = ["starting", "draining", "degraded"];
const RETRY_MS = 1000, SILENT_MS = 10_000, RUNNING = "turn_running";

export class Game {
  /**
   * on: functions by what happens. opened({turns, character, lost, picture, understood}), branched(session, token, turn), listed(turns),
   * began(), event(message), ended(error or null, the instruction if it was a turn's), waits(error), gone(token).
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

  /** The turn that this window waits for. Another one's is not asked for: its pictures would come here instead. */
  get pending() {
    const noted = keptValue(PENDING, (one) => one && one.tab === kept(TAB, true) && typeof one.turn?.instruction === "string" && typeof one.turn.turn_id === "string");
    return noted?.turn ?? null;
  }

  set pending(turn) {
    if (!kept(TAB, true)) keep(TAB, newId(), true);
    keep(PENDING, turn && JSON.stringify({ tab: kept(TAB, true), turn }));
  }

  /** Go on with the kept game, or begin one. Then show a turn of it, the newest unless another is wanted. */
  async open(shown = Infinity, seed = newSeed()) {
    const token = kept(TOKEN);
    this.halt();
    let opened, lost = false;
    try {
      opened = await this.connection.ask("open", token ? { token } : { seed });
    } catch (error) {
      if (!token || !ENDED.includes(error.code)) return this.later(error);
      this.forget();
      this.on.gone(token);
      lost = true;
      try {
        opened = await this.connection.ask("open", { seed });
      } catch (second) {
        return this.later(second);
      }
    }
    this.session = opened.session;
    this.token = opened.fields.token;
    this.seed = opened.fields.seed;
    keep(TOKEN, this.token);
    this.on.opened({ ...opened.fields, lost });
    if (opened.fields.turns) await this.list();
    if (this.pending) this.ask(this.pending, [RUNNING]);
    else if (opened.fields.turns) this.replay(Math.min(shown, opened.fields.turns));
  }

  /** Begin another game, from a picture (a Blob) in which the motion happens. Rejects with the fields of an error. */
  async openFrom(picture, motion) {
    const opened = await this.connection.ask("open", { motion }, {}, picture);
    this.halt();
    this.session = opened.session;
    keep(TOKEN, (this.token = opened.fields.token));
    this.on.opened({ ...opened.fields, lost: false, picture });
  }

  /** Go on with another game of this browser. */
  go(token, turn) {
    keep(TOKEN, token);
    return this.open(turn);
  }

  later(error) {
    this.on.waits(error);
    this.timer = setTimeout(() => this.open(), 2 * RETRY_MS);
  }

  async list() {
    const listed = await this.connection.ask("list", { token: this.token }, this.header).catch(() => null);
    if (listed) this.on.listed(listed.fields.turns);
    return listed;
  }

  /**
   * Play a turn, after the last one or, with `after`, in a second game that has the turns up to that one. It is noted
   * first, so that a page that is loaded again asks for the same one.
   */
  async play(instruction, after = null) {
    if (after !== null) {
      const opened = await this.connection.ask("branch", { token: this.token, turn: after }, this.header);
      this.session = opened.session;
      this.token = opened.fields.token;
      this.on.branched(this.session, this.token, after);
      keep(TOKEN, this.token);
    }
    this.ask((this.pending = { instruction, turn_id: newId() }));
  }

  /** Say what the next turn may be: a server that plays ahead draws it before it is asked for. */
  wish(instructions) {
    this.connection.ask("wish", { token: this.token, instructions }, this.header).catch(() => {});
  }

  ask(turn, waits = []) {
    this.follow("turn", { ...turn, token: this.token }, this.header, () => this.ask(turn, waits), waits);
  }

  /** Show a finished turn again. */
  replay(turn) {
    this.follow("replay", { token: this.token }, { ...this.header, turn }, () => this.replay(turn), [RUNNING]);
  }

  /** waits: codes of errors after which this is asked again, beside those of a server that is not ready. */
  follow(type, fields, header, again, waits) {
    this.halt();
    this.on.began();
    let next = 0;
    const expect = () => { // another window that asks for the same turn gets the rest of it; ask again if nothing comes
      clearTimeout(this.timer);
      this.timer = setTimeout(again, SILENT_MS);
    };
    const listen = (kind, content, head) => {
      this.stop = this.connection.listen(kind, content, head, (message) => {
        expect();
        if (message.type === "error") return this.failed(message.fields, again, waits);
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
    expect();
    listen(type, fields, header);
  }

  failed(error, again, waits) {
    if (WAIT.includes(error.code) || waits.includes(error.code)) {
      clearTimeout(this.timer);
      this.on.waits(error);
      this.timer = setTimeout(again, RETRY_MS);
    } else this.end(error);
  }

  end(error) {
    this.halt();
    const { pending } = this;
    if (pending) this.pending = null;
    this.on.ended(error, pending?.instruction);
  }

  /** A finished turn as an mp4 file, which the server renders again. Rejects with the fields of an error. */
  async film(turn, onProgress) {
    this.halt();
    await this.connection.form({ codec: "mp4" });
    const pieces = [];
    await new Promise((resolve, reject) => {
      const stop = this.connection.listen("replay", { token: this.token }, { ...this.header, turn }, ({ type, fields, buffer }) => {
        if (type === "clip") pieces.push(buffer);
        else if (type === "progress") onProgress(fields.step / fields.steps);
        else if (type === "done") resolve();
        else if (type === "error") reject(fields);
      });
      this.stop = () => (stop(), reject({ code: "cancelled" })); // the connection was lost, too
    }).finally(() => {
      this.stop = null;
      return this.connection.up && this.connection.form();
    });
    return new Blob(pieces, { type: "video/mp4" });
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

  /** End a game for good. */
  close(session, token) {
    return this.connection.ask("close", { token }, { session }).catch(() => {});
  }

  /** End these games and begin another, with this seed if there is one. */
  async fresh(games, seed) {
    this.halt();
    await Promise.all(games.map((one) => this.close(one.session, one.token)));
    this.forget();
    await this.open(Infinity, seed);
  }

  forget() {
    for (const key of [TOKEN, PENDING]) keep(key, null);
  }
}

/** A random id; `crypto.randomUUID` is there only on secure pages. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (one) => one.toString(16).padStart(2, "0")).join("");
}

/** A game's seed, which fits JavaScript's numbers, so that a story can name it. */
function newSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}
