// The picture: plays a clip while it arrives, at its own rate, and loops. Knows frames, not turns.

const PAUSE_S = 0.5; // the last frame is held before a clip begins again
const FADE_S = 0.25; // a clip is drawn over the one before it
const LINES = "#2f86b8", PAPER = "#fffdf6", PAPER_SHARE = 0.62; // the clip before, in construction blue under the next sheet

export class Screen {
  /** onFrame(index): when another frame is shown. */
  constructor(canvas, onFrame) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.onFrame = onFrame;
    this.clip = null;
    this.before = null;
    this.ghost = false; // true: the clip is only a guide for the next one, which is being drawn
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.loop = this.loop.bind(this);
    requestAnimationFrame(this.loop);
  }

  /** Begin another clip. The one before stays until the first frame is there. */
  begin(count, fps) {
    this.next = { frames: [], count, fps, start: null };
  }

  /** Take a frame of the clip that was begun: what createImageBitmap takes. */
  async take(index, picture) {
    const clip = this.next;
    const bitmap = picture instanceof ImageBitmap ? picture : await createImageBitmap(picture);
    if (clip !== this.next) return bitmap.close();
    clip.frames[index] = bitmap;
    if (this.clip !== clip && clip.frames[0]) this.swap(clip);
  }

  swap(clip) {
    this.before?.frames.forEach((one) => one?.close());
    this.before = this.clip;
    this.clip = clip;
    this.shown = -1;
    clip.start = null;
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
      clip.looped = true;
      index = seconds = 0;
    }
    index = Math.min(index, clip.count - 1);
    while (index > 0 && !clip.frames[index]) index--; // it has not arrived: hold the last one that has
    const fading = this.before && !clip.looped && seconds < FADE_S && !this.still.matches;
    if (index === this.shown && this.ghost === this.ghostly && !fading && !this.faded) return;
    this.ghostly = this.ghost;
    this.faded = fading;
    this.shown = index;
    this.draw(clip.frames[index], 1);
    const last = this.before?.frames.at(-1);
    if (fading && last) this.draw(last, 1 - seconds / FADE_S);
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
