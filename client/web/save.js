// Hands a file to the visitor, and makes the GIF of a clip.

const WIDEST = 480, SMALLEST = 288;

/** The clip on the table as an animated GIF: at the bundle's own size, twice that if it is small. */
export async function saveGif(clip, [width, height]) {
  const scale = width < SMALLEST ? 2 : Math.min(1, WIDEST / width);
  const canvas = new OffscreenCanvas(Math.round(scale * width), Math.round(scale * height));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const frames = clip.frames.map((frame) => {
    context.drawImage(frame, 0, 0, canvas.width, canvas.height);
    return context.getImageData(0, 0, canvas.width, canvas.height);
  });
  await new Promise((then) => setTimeout(then, 30)); // the page says that it saves before the work begins
  const { gif } = await import("./gif.js");
  return gif(frames, clip.fps);
}

export function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
