// Which picture to show now: clips at their own rate, held, looped or played back and forth, faded into each other.
// The same as every client's, held to client/vectors/display.json. Knows neither messages nor the canvas.

const MOST_CLIPS = 2; // the one that is shown, and the one after it: when a third begins, the first is cut short

export class Display {
  /**
   * mode: "hold", "loop" or "ping-pong", of the clips that begin from now on; hold gives up each picture as it passes.
   * rest, fade: seconds for which the last picture stays before the clip comes again, and in which the next is faded in.
   * atOnce: a clip begins with its first picture, not when the one before was played once. release(picture).
   */
  constructor(fps, release) {
    Object.assign(this, { fps, release, mode: "hold", rest: 0, fade: 0, atOnce: false, paused: false });
    Object.assign(this, { clips: [], under: null, fading: 0, now: null, ended: 0 });
  }

  /** Take the picture `index` of `count` of a turn. Another turn, or another order, begins another clip. */
  add(picture, turn, index, count) {
    let newest = this.clips.at(-1);
    if (!newest || newest.turn !== turn || index !== arrived(newest) || index >= newest.count) {
      this.end();
      if (this.clips.length === MOST_CLIPS) this.leave();
      newest = { turn, first: index, count, pictures: [], passed: 0, time: null, shown: index, keeps: false, ended: false };
      this.clips.push(newest);
    }
    newest.pictures.push(picture);
  }

  /** No more pictures come for the newest clip: its turn is done or was cancelled. */
  end() {
    const newest = this.clips.at(-1);
    if (newest) newest.count = arrived(newest);
  }

  /** Play the clip from its beginning, if it keeps its pictures. */
  again() {
    const [clip] = this.clips;
    if (clip?.keeps) Object.assign(clip, { time: clip.first / this.fps, ended: false });
  }

  /** Forget all pictures. */
  clear() {
    while (this.clips.length) this.leave();
    this.giveUpUnder();
    this.ended = 0;
  }

  /**
   * What to draw at this time, in seconds: `picture`, and over it `next`, if any, with the weight `blend`; `turn` and
   * `index` of the newer one. ended: a turn whose clip was played once, or cut short, since the last call; 0: none.
   */
  advance(now) {
    const passed = this.now === null || this.paused ? 0 : Math.max(0, now - this.now);
    this.now = now;
    this.fading += passed;
    if (this.clips[0] && this.clips[0].time !== null && !this.paused) this.play(this.clips[0], passed);
    const [clip] = this.clips, { ended } = this;
    this.ended = 0;
    if (!clip) return { picture: null, next: null, blend: 0, turn: 0, index: -1, ended };
    if (clip.time === null) {
      Object.assign(clip, { time: clip.first / this.fps, keeps: this.mode !== "hold" });
      this.fading = 0;
    }
    clip.shown = Math.max(clip.first, Math.min(this.position(clip), arrived(clip) - 1));
    if (!clip.keeps) this.giveUp(clip, clip.shown - clip.first);
    if (this.fade <= 0 || this.fading >= this.fade) this.giveUpUnder();
    const about = { turn: clip.turn, index: clip.shown, ended }, picture = clip.pictures[clip.shown - clip.first];
    if (this.under === null) return { picture, next: null, blend: 0, ...about };
    return { picture: this.under, next: picture, blend: this.fading / this.fade, ...about };
  }

  play(clip, passed) {
    clip.time += passed;
    if (arrived(clip) < clip.count) clip.time = Math.min(clip.time, arrived(clip) / this.fps);
    else if (clip.time >= clip.count / this.fps && !clip.ended) {
      clip.ended = true;
      this.ended = clip.turn;
    }
    if (this.clips.length > 1 && (clip.ended || this.atOnce)) this.leave();
  }

  position({ count, time, keeps }) {
    const once = count / this.fps, last = count - 1;
    if (time >= once && (this.mode === "hold" || !keeps)) return last;
    const back = this.mode === "ping-pong" ? Math.max(0, count - 2) : 0;
    const at = time % (once + this.rest + back / this.fps);
    if (at < once) return Math.floor(at * this.fps);
    return at < once + this.rest ? last : last - 1 - Math.floor((at - once - this.rest) * this.fps);
  }

  /** Drop the first clip, except for the picture that is shown, which the next one is drawn over. */
  leave() {
    const clip = this.clips.shift();
    if (clip.time !== null) {
      if (!clip.ended) this.ended = clip.turn;
      this.giveUpUnder();
      this.under = clip.pictures[clip.shown - clip.first];
      this.giveUp(clip, clip.shown - clip.first);
      clip.passed++;
    }
    this.giveUp(clip, clip.pictures.length);
  }

  giveUp(clip, before) {
    for (; clip.passed < before; clip.passed++) this.release(clip.pictures[clip.passed]);
  }

  giveUpUnder() {
    if (this.under !== null) this.release(this.under);
    this.under = null;
  }
}

function arrived(clip) {
  return clip.first + clip.pictures.length;
}
