// A run: clips that follow each other by themselves, of sentences to play or turns to show again. Knows no messages.

const QUIET_TURNS = 30, LEAD_S = 0.3, REST_MS = 3000;

export class Run {
  /**
   * screen: plays each clip to its end before the next one, while this is active. on: functions by what is wanted.
   * table(): the turn on the table, if its clip is whole and shown and another may be asked for; else null.
   * play(sentence), show(turn): ask for it. quiet(): the text of a turn that nobody asked for. back(): to the last turn that
   * somebody asked for. changed(): this began or ended.
   */
  constructor(screen, on) {
    Object.assign(this, { screen, on, active: false, lives: false, next: [], coming: [], seconds: 1, rests: 0 });
    document.addEventListener("visibilitychange", () => this.goOn());
  }

  /**
   * Ask for all of `next`, sentences ({text}) or turns' numbers: each shortly before the clip on the table ends, and the
   * first at once unless it `joins`. lives: then go on with quiet turns. begins(): the first clip does; ends(): all were shown.
   */
  start(next, { joins = false, lives = false, begins = null, ends = null } = {}) {
    Object.assign(this, { active: true, next, joins, lives, begins, ends, silence: 0 });
    this.on.changed();
    this.goOn();
  }

  stop() {
    this.active = this.screen.joins = false;
    this.begins = null;
    this.coming.splice(0).forEach((show) => show());
    this.ends?.();
    this.on.changed();
  }

  /** The server has too much to do: ask again in a while, for this sentence if there is one. */
  rest(sentence) {
    if (sentence) this.next.unshift(sentence);
    this.rests = performance.now() + REST_MS;
    setTimeout(() => this.goOn(), REST_MS);
  }

  /** A clip is asked for, by whomever. */
  asks() {
    this.asked = performance.now();
  }

  /** Its first picture is here. What takes this long is asked for in time from now on. */
  arrives() {
    this.seconds = Math.max(0.7 * this.seconds, (performance.now() - this.asked) / 1000 || 0);
  }

  /** What is said of a turn is shown with its clip, which may wait for the one before. */
  later(show) {
    this.active ? this.coming.push(show) : show();
  }

  /** Another clip is on the screen. */
  begun() {
    this.coming.splice(0).forEach((show) => show());
    this.begins?.();
    this.begins = null;
  }

  /** A picture is shown; left: seconds from its beginning to the end of its clip. */
  shows(left, last) {
    Object.assign(this, { left, last });
    this.goOn();
  }

  goOn() {
    if (!this.active || performance.now() < this.rests) return;
    const turn = this.on.table();
    if (turn === null) return;
    if (turn && this.joins && !this.next[0]?.asked && this.left > LEAD_S + 1.5 * this.seconds) return;
    const next = this.next.shift() ?? (this.lives ? this.quiet() : undefined);
    if (next === null) return;
    if (next === undefined) return this.last && this.stop();
    this.screen.joins = this.joins;
    this.joins = true;
    if (next.asked) this.silence = 0;
    typeof next === "number" ? this.on.show(next) : this.on.play(next);
  }

  /** What happens while nobody says anything. After QUIET_TURNS of it the game goes back to what was last asked for. */
  quiet() {
    if (this.silence++ < QUIET_TURNS) return { text: this.on.quiet(), quiet: true };
    this.silence = 0;
    this.on.back();
    return null;
  }
}
