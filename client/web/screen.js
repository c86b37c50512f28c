// The picture: plays a clip while it arrives, at its own rate, and loops. Knows frames, not turns.

import { Display } from "./display.js";

const PAUSE_S = 0.5; // the last frame is held before a clip begins again
const FADE_S = 0.25, FIRST_SHARE = 0.2; // a clip is drawn over what is there; of its first picture a fifth is seen at once
const SMALL_PX = 400, STRENGTH = 0.9, REACH = 2; // pictures that are narrower are enlarged twice and their outlines inked
const LINES = "#2f86b8", PAPER = "#fffdf6", PAPER_SHARE = 0.62; // the clip before, in construction blue under the next sheet

export class Screen {
  /** onFrame(index, count, clip): when another frame is shown; clips are numbered as they are begun. */
  constructor(canvas, onFrame) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.onFrame = onFrame;
    this.kept = []; // pictures of the clip that `revert` goes back to
    this.display = Object.assign(new Display(8, (bitmap) => this.kept.includes(bitmap) || bitmap.close()), { mode: "loop" });
    this.begun = 0; // clips
    this.joins = false; // true: a clip begins when the one before was played, which then waits for it
    this.shown = { turn: 0, index: -1 };
    this.share = 1; // how much of this clip is on the canvas; the rest is what was there
    this.ghost = false; // true: the clip is only a guide for the next one, which is being drawn
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.loop = this.loop.bind(this);
    requestAnimationFrame(this.loop);
  }

  /** Begin another clip. The one before stays until the first frame is there. */
  begin(count, fps) {
    this.next = { number: ++this.begun, count, fps, waiting: [], added: 0 };
  }

  /** Take a frame of the clip that was begun: what createImageBitmap takes. Returns whether it is still wanted. */
  async take(index, picture) {
    const clip = this.next;
    let bitmap = picture instanceof ImageBitmap ? picture : await createImageBitmap(picture);
    if (bitmap.width < SMALL_PX) bitmap = await this.inked(bitmap);
    if (clip !== this.next) {
      bitmap.close();
      return false;
    }
    clip.waiting[index] = bitmap; // decoding may change the order
    for (; clip.waiting[clip.added]; clip.added++) {
      this.display.fps = clip.fps;
      this.display.add(clip.waiting[clip.added], clip.number, clip.added, clip.count);
    }
    return true;
  }

  /** The last frame of the clip that was begun; undefined until it is there. */
  get last() {
    return this.next?.waiting[this.next.count - 1];
  }

  /** The picture, twice as large: what differs from its surroundings differs more, so that it looks drawn, not blurred. */
  inked(bitmap) {
    const width = 2 * bitmap.width, height = 2 * bitmap.height, row = 4 * width;
    this.table ??= document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    Object.assign(this.table.canvas, { width, height });
    this.table.imageSmoothingQuality = "high";
    this.table.drawImage(bitmap, 0, 0, width, height);
    bitmap.close();
    const picture = this.table.getImageData(0, 0, width, height), { data } = picture, soft = data.slice(), far = REACH * row, near = REACH * 4;
    for (let y = REACH; y < height - REACH; y++) {
      for (let at = y * row + near; at < (y + 1) * row - near; at++) {
        data[at] = soft[at] + STRENGTH * (soft[at] - (soft[at - far] + soft[at + far] + soft[at - near] + soft[at + near]) / 4);
      }
    }
    return createImageBitmap(picture);
  }

  /** What is shown now is what `revert` goes back to. */
  settle() {
    const kept = this.display.clips.at(-1)?.pictures ?? [];
    this.kept.filter((one) => !kept.includes(one)).forEach((one) => one.close());
    this.kept = [...kept];
  }

  /** The clip that was begun since `settle` will not be whole: go back to the one before. */
  revert() {
    const { kept } = this, count = kept.length, last = this.display.clips.at(-1), shown = last?.pictures[0] === kept[0];
    if (!count) return;
    if (shown) this.begun = last.turn - 1; // it is the newest again
    this.begin(count, this.display.fps);
    Object.assign(this.next, { waiting: kept, added: count });
    if (shown) return;
    this.display.clear();
    kept.forEach((one, at) => this.display.add(one, this.begun, at, count));
  }

  /** Play the clip from its beginning. */
  again() {
    this.display.again();
  }

  loop(now) {
    requestAnimationFrame(this.loop);
    Object.assign(this.display, { atOnce: !this.joins, rest: this.still.matches || this.joins ? Infinity : PAUSE_S, fade: this.still.matches ? 0 : FADE_S });
    const { picture, next, blend, turn, index } = this.display.advance(now / 1000);
    if (!picture) return;
    if (turn !== this.shown.turn) this.share = 0;
    const before = this.share;
    if (turn === this.shown.turn && index === this.shown.index && this.ghost === this.ghostly && before === 1) return;
    this.ghostly = this.ghost;
    this.shown = { turn, index };
    this.share = next ? Math.max(before, FIRST_SHARE + (1 - FIRST_SHARE) * blend) : 1;
    this.draw(next ?? picture, before === 1 ? 1 : (this.share - before) / (1 - before));
    if (this.ghost) this.fade();
    this.onFrame(index, this.display.clips[0].count, turn);
  }

  draw(bitmap, alpha) {
    const { canvas, context } = this;
    const height = Math.round((canvas.width * bitmap.height) / bitmap.width);
    if (canvas.height !== height) canvas.height = height;
    context.globalAlpha = alpha;
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  }

  /** Turn what is drawn into blue lines on paper: two fills, which cost less than a filter does without a GPU. */
  fade() {
    const { canvas, context } = this;
    for (const [mode, colour, alpha] of [["color", LINES, 1], ["source-over", PAPER, PAPER_SHARE]]) {
      Object.assign(context, { globalCompositeOperation: mode, fillStyle: colour, globalAlpha: alpha });
      context.fillRect(0, 0, canvas.width, canvas.height);
    }
    context.globalCompositeOperation = "source-over";
  }

  /** A small JPEG of what is shown, as a data address. */
  thumbnail() {
    const small = document.createElement("canvas");
    small.width = 144;
    small.height = Math.round((144 * this.canvas.height) / this.canvas.width);
    small.getContext("2d").drawImage(this.last, 0, 0, small.width, small.height);
    return small.toDataURL("image/jpeg", 0.8);
  }
}
