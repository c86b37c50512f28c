// A story leaves the page: as an address that plays it again, on any server with the same bundle, or as a film.

const MARK = "#story=", MOST_TURNS = 200, MOST_CHARACTERS = 2000;
const CAPTION = 0.15, TYPES = ["video/mp4;codecs=avc1.42E01F", "video/mp4", "video/webm"]; // the caption's height, of a picture's
const LAST_MS = 300; // for which the last picture is shown

/** The address of this page with a story: {bundle, plan, seed, turns}, of which the turns are instructions. */
export function addressOf(story) {
  const bytes = new TextEncoder().encode(JSON.stringify(story));
  return location.href.split("#")[0] + MARK + btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_");
}

/** The story of an address, or null. Anybody may have written it. */
export function storyOf(hash) {
  try {
    const bytes = Uint8Array.from(atob(hash.slice(MARK.length).replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
    const { bundle, plan, seed, turns } = JSON.parse(new TextDecoder().decode(bytes));
    const fits = hash.startsWith(MARK) && Number.isSafeInteger(seed) && seed >= 0 && turns.length > 0 && turns.length <= MOST_TURNS;
    return fits && turns.every((one) => typeof one === "string" && one.length <= MOST_CHARACTERS) ? { bundle, plan, seed, turns } : null;
  } catch {
    return null;
  }
}

/** Records what a canvas shows, with a caption below, while it is shown: null where a browser cannot. */
export class Recorder {
  static get type() {
    return globalThis.MediaRecorder && TYPES.find((one) => MediaRecorder.isTypeSupported(one));
  }

  /** caption: a function, of the words below the picture. */
  constructor(canvas, caption) {
    const sheet = document.createElement("canvas"), strip = Math.round(canvas.height * CAPTION / 2) * 2;
    Object.assign(sheet, { width: canvas.width, height: canvas.height + strip });
    const pen = sheet.getContext("2d"), parts = [];
    const draw = () => {
      this.frame = requestAnimationFrame(draw);
      pen.fillStyle = "#181a1f";
      pen.fillRect(0, canvas.height, sheet.width, strip);
      pen.drawImage(canvas, 0, 0);
      Object.assign(pen, { fillStyle: "#f8f3e7", font: `italic ${Math.round(strip * 0.4)}px ${getComputedStyle(document.body).fontFamily}`, textAlign: "center", textBaseline: "middle" });
      pen.fillText(caption(), sheet.width / 2, canvas.height + strip / 2, sheet.width * 0.94);
    };
    draw();
    this.recorder = new MediaRecorder(sheet.captureStream(), { mimeType: Recorder.type, videoBitsPerSecond: 4_000_000 });
    this.recorder.ondataavailable = ({ data }) => parts.push(data);
    this.ended = new Promise((then) => (this.recorder.onstop = () => then(new Blob(parts, { type: Recorder.type.split(";")[0] }))));
    this.rest = () => (document.hidden ? this.recorder.pause() : this.recorder.resume()); // nothing is drawn in a hidden window
    document.addEventListener("visibilitychange", this.rest);
    this.recorder.start();
  }

  /** The film. */
  async finish() {
    await new Promise((then) => setTimeout(then, LAST_MS));
    cancelAnimationFrame(this.frame);
    document.removeEventListener("visibilitychange", this.rest);
    this.recorder.stop();
    return this.ended;
  }
}
