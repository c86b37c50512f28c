// The picture until the page is there: a clip in a loop. With ?hold it stays until somebody touches it.

const COUNT = 17, FPS = 8, ASK_MS = 2000;
const canvas = document.querySelector("canvas"), context = canvas.getContext("2d");
const hold = new URLSearchParams(location.search).has("hold");
let touched = false, asking = false;

async function leave() {
  if (asking || (hold && !touched)) return;
  asking = true;
  try {
    const { ready, page } = await (await fetch("waiting.json", { cache: "no-store" })).json();
    if (ready) location.replace(page);
  } catch {
    // The watcher starts again: the picture goes on.
  }
  asking = false;
}

const strip = new Image();
strip.src = "waiting.jpg";
strip.onload = () => {
  const height = strip.height / COUNT;
  canvas.height = Math.round((canvas.width * height) / strip.width);
  const draw = (now) => {
    const index = Math.floor((now / 1000) * FPS) % COUNT;
    context.drawImage(strip, 0, index * height, strip.width, height, 0, 0, canvas.width, canvas.height);
    requestAnimationFrame(draw);
  };
  requestAnimationFrame(draw);
};
for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { touched = true; leave(); });
setInterval(leave, ASK_MS);
leave();
