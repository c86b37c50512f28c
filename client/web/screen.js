// The picture: plays a clip while it arrives, at its own rate, and loops. Knows frames, not turns.

const PAUSE_S = 0.5; // the last frame is held before a clip begins again
const FADE_S = 0.25, FIRST_S = 0.05; // a clip is drawn over what is there; of its first picture a fifth is seen at once
const LINES = "#2f86b8", PAPER = "#fffdf6", PAPER_SHARE = 0.62; // the clip before, in construction blue under the next sheet

export class Screen {
  /** onFrame(index): when another frame is shown. */
  constructor(canvas, onFrame) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.onFrame = onFrame;
    this.clip = null;
    this.ghost = false; // true: the clip is only a guide for the next one, which is being drawn
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.loop = this.loop.bind(this);
    requestAnimationFrame(this.loop);
  }

  /** Begin another clip. The one before stays until the first frame is there. */
  begin(count, fps) {
    this.next = { frames: [], count, fps, start: null };
  }

  /** Take a frame of the clip that was begun: what createImageBitmap takes. Returns whether it is still wanted. */
  async take(index, picture) {
    const clip = this.next;
    const bitmap = picture instanceof ImageBitmap ? picture : await createImageBitmap(picture);
    if (clip !== this.next) {
      bitmap.close();
      return false;
    }
    clip.frames[index] = bitmap;
    if (this.clip !== clip && clip.frames[0]) this.swap(clip);
    return true;
  }

  swap(clip) {
    this.clip?.frames.forEach((one) => one?.close());
    this.clip = clip;
    this.shown = -1;
    Object.assign(clip, { start: null, share: 0 });
  }

  /** Play the clip from its beginning. */
  again() {
    if (this.clip) this.clip.start = null;
  }

  loop(now) {
    requestAnimationFrame(this.loop);
    const clip = this.clip;
    if (!clip) return;
    if (clip.start === null) clip.start = now;
    let seconds = (now - clip.start) / 1000;
    let index = Math.floor(seconds * clip.fps);
    if (index >= clip.count && seconds > clip.count / clip.fps + PAUSE_S && !this.still.matches && !clip.frames.includes(undefined)
      && clip.frames.length === clip.count) {
      clip.start = now;
      index = seconds = 0;
    }
    index = Math.min(index, clip.count - 1);
    while (index > 0 && !clip.frames[index]) index--; // it has not arrived: hold the last one that has
    const before = clip.share; // how much of this clip is on the canvas; the rest is what was there
    if (index === this.shown && this.ghost === this.ghostly && before === 1) return;
    this.ghostly = this.ghost;
    this.shown = index;
    clip.share = this.still.matches ? 1 : Math.max(before, Math.min(1, (seconds + FIRST_S) / FADE_S));
    this.draw(clip.frames[index], before === 1 ? 1 : (clip.share - before) / (1 - before));
    if (this.ghost) this.fade();
    this.onFrame(index);
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
    small.getContext("2d").drawImage(this.clip.frames.at(-1), 0, 0, small.width, small.height);
    return small.toDataURL("image/jpeg", 0.8);
  }
}
