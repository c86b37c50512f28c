// The page's display by the commands of client/vectors/display.json, a line each: node display.mjs FOLDER.

import { createInterface } from "node:readline";

const { Display } = await import(`${process.argv[2]}/display.js`);
let display, released = [];

function answer([verb, ...words]) {
  if (verb === "new") {
    display = new Display(Number(words[0]), (picture) => released.push(picture));
    Object.assign(display, { mode: words[1], rest: Number(words[2]), fade: Number(words[3]), atOnce: words.length > 4 });
  } else if (verb === "add") display.add(`${words[0]}.${words[1]}`, ...words.map(Number));
  else if (verb === "at") {
    const { picture, next, blend, turn, index, ended } = display.advance(Number(words[0]));
    return [picture ?? "-", next ?? "-", blend, turn, index, ended, released.splice(0).join() || "-"].join(" ");
  } else if (verb === "pause" || verb === "go") display.paused = verb === "pause";
  else display[verb]();
  return "ok";
}

for await (const line of createInterface({ input: process.stdin })) console.log(answer(line.split(" ").slice(1)));
