// A day of the kiosk's page in seconds: node --expose-gc day.mjs FOLDER, with the kit's own scripts on standard input.
// Prints what the kit sees of the page, and what the page holds after a quarter of the day and at its end.

import { readFileSync } from "node:fs";
import { count, load, pass, waiting } from "./small_page.mjs";

const { state, end } = JSON.parse(readFileSync(0, "utf8")), HOUR_S = 3600, LOOK_S = 600;
await load(process.argv[2], "http://127.0.0.1:8080/?kiosk");
const look = () => eval(state).idle;
const slips = () => [...document.querySelectorAll("#ready button")].map((one) => one.textContent).filter(Boolean);
const turns = () => document.querySelectorAll("#turns li").length;

/** A visitor types a sentence and draws it; returns whether the page could. */
function play(text) {
  const field = document.getElementById("text");
  field.value = text;
  field.dispatchEvent(new Event("input"));
  window.animegamerTouched.at = performance.now();
  if (document.getElementById("draw").getAttribute("aria-disabled") === "true") return false;
  document.getElementById("sheet").requestSubmit();
  return true;
}

/** An hour without anybody, then a visitor who plays a turn and goes, whose game is ended. */
async function hour() {
  let touched = 0;
  for (let s = 0; s < HOUR_S; s += LOOK_S) {
    await pass(LOOK_S);
    touched += look() !== null;
  }
  const said = play("Tofi waves.");
  await pass(29);
  const ready = slips(), field = document.getElementById("text");
  field.value = "Zelki jumps.";
  field.dispatchEvent(new Event("input"));
  await pass(1);
  const wished = slips();
  field.value = "";
  field.dispatchEvent(new Event("input"));
  const left = { said, ready, wished, turns: turns(), idle: look() };
  eval(end);
  await pass(2);
  window.animegamerTouched.at = null; // the kit loads the page anew; this one goes on, to show what it keeps
  return { touched, ...left, after: turns() };
}

const held = () => (gc(), { heap: process.memoryUsage().heapUsed, nodes: document.documentElement.all.length, timers: waiting(), listeners: count.listeners });
const hours = [], samples = [];
for (let number = 0; number < 24; number++) {
  hours.push(await hour());
  if (number === 5 || number === 23) samples.push(held());
}
console.log(JSON.stringify({ hours, samples, ...count }));
process.exit(0);
