// As much of a browser as the page needs, on a clock of its own: elements, events, timers, frames of the screen, a
// server that answers at once. It draws nothing and lays nothing out.

import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";

const VOID = ["meta", "link", "input", "img"], FRAME_MS = 100; // ten frames a second: a clip has eight pictures
const WORDS = { people: ["Tofi", "Zelki"], motions: ["wave", "jump"], manners: ["gently"], places: ["meadow"], hours: ["day", "night"] };
export const BUNDLE = { name: "pocket", frames: 17, fps: 8, width: 144, height: 96, ...WORDS };
export const count = { drawn: 0, listeners: 0, pings: 0, opened: 0 };

class Element {
  constructor(tag) {
    Object.assign(this, { tagName: tag, children: [], parentElement: null, attributes: {}, classes: new Set(), text: "", value: "", hidden: false, width: 0, height: 0 });
    this.dataset = new Proxy(this.attributes, {
      get: (all, key) => all[`data-${key}`],
      set: (all, key, value) => ((all[`data-${key}`] = String(value)), true),
    });
    this.style = { setProperty() {} };
    this.offsetLeft = this.offsetTop = this.offsetHeight = this.clientWidth = this.clientHeight = 0;
  }
  get id() { return this.attributes.id; }
  get className() { return [...this.classes].join(" "); }
  set className(names) { this.classes = new Set(names.split(" ").filter(Boolean)); }
  get classList() { return this; }
  add(name) { this.classes.add(name); }
  remove(name) { this.classes.delete(name); }
  toggle(name, on = !this.classes.has(name)) { on ? this.classes.add(name) : this.classes.delete(name); }
  get textContent() { return this.text + this.children.map((one) => one.textContent).join(""); }
  set textContent(text) { this.replaceChildren(); this.text = String(text); }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  getAttribute(name) { return this.attributes[name] ?? null; }
  hasAttribute(name) { return name in this.attributes; }
  removeAttribute(name) { delete this.attributes[name]; }
  append(...all) { for (const one of all) { this.children.push(one); one.parentElement = this; } }
  replaceChildren(...all) { this.children = []; this.text = ""; this.append(...all); }
  get firstElementChild() { return this.children[0] ?? null; }
  get childElementCount() { return this.children.length; }
  get all() { return this.children.flatMap((one) => [one, ...one.all]); }
  contains(other) { return typeof other === "string" ? this.classes.has(other) : this === other || this.all.includes(other); }
  matches(selector) {
    const [last, ...above] = selector.split(" ").reverse(), [, tag, rest] = last.match(/^([a-z0-9]*)(.*)$/);
    const fits = (!tag || tag === this.tagName) && [...rest.matchAll(/#([\w-]+)|\.([\w-]+)|\[([\w-]+)(?:=(\w+))?\]/g)].every(([, id, name, attribute, value]) =>
      id ? this.id === id : name ? this.classes.has(name) : value === undefined ? this.hasAttribute(attribute) : this.getAttribute(attribute) === value);
    return fits && (!above.length || Boolean(this.parentElement?.closest(above.reverse().join(" "))));
  }
  closest(selector) { return this.matches(selector) ? this : this.parentElement?.closest(selector) ?? null; }
  querySelectorAll(selector) { return this.all.filter((one) => one.matches(selector)); }
  querySelector(selector) { return this.querySelectorAll(selector)[0] ?? null; }
  getBoundingClientRect() { return { x: 0, y: 0, left: 0, width: 0, height: 0 }; }
  getContext() { return { drawImage: () => count.drawn++, fillRect() {} }; }
  toDataURL() { return "data:,"; }
  focus() { document.activeElement = this; }
  scrollTo() {}
  click() { this.onclick?.(new Event("click")); }
  requestSubmit() { this.onsubmit?.(new Event("submit")); }
  dispatchEvent(event) { this[`on${event.type}`]?.(event); }
}

function parse(html, ids) {
  const root = new Element("html"), open = [root];
  for (const [, end, tag, words] of html.matchAll(/<(\/?)([a-z0-9]+)([^>]*)>/g)) {
    if (end) open.splice(open.findLastIndex((one) => one.tagName === tag));
    else {
      const one = new Element(tag);
      for (const [, name, value] of words.matchAll(/([\w-]+)(?:="([^"]*)")?/g)) one.attributes[name] = value ?? "";
      one.className = one.attributes.class ?? "";
      if (one.id) ids.set(one.id, one);
      one.hidden = one.hasAttribute("hidden");
      open.at(-1).append(one);
      if (!VOID.includes(tag)) open.push(one);
    }
  }
  return root;
}

/** Answers what the page asks; a turn is done at once. */
class Server {
  static OPEN = 1;
  readyState = 1;
  constructor() { queueMicrotask(() => this.onopen()); }
  close() { this.readyState = 3; }
  send(text) {
    const { type, id, fields, session, turn } = JSON.parse(text), answer = (kind, content, head = {}) => this.answer({ type: kind, parent: id, fields: content, ...head });
    if (type === "hello") answer("welcome", { bundle: BUNDLE, state: "ready", capabilities: [] });
    else if (type === "ping") count.pings++, answer("pong", {});
    else if (type === "open") answer("opened", { token: `token ${++count.opened}`, turns: 0, character: this.character }, { session: `game ${count.opened}` });
    else if (type === "wish") this.wish(answer, fields.instructions, session);
    else if (type === "turn") this.turn(answer, fields.instruction, session, turn ?? 1);
    else answer("closed", { turns: [] }, { session });
  }
  wish(answer, instructions, session) {
    answer("wished", { instructions }, { session, turn: 2 });
    this.answer({ type: "offer", session, turn: 2, fields: { instructions } });
  }
  character = { stamina: 50, social: 50, entertainment: 50 };
  turn(answer, instruction, session, turn) {
    let seq = 0;
    const head = () => ({ session, turn, seq: seq++ });
    answer("accepted", { instruction, place: 0, estimate_s: 1 }, head());
    answer("state", { shown: this.character, stamina: 1, social: 0, entertainment: 0 }, head());
    for (let index = 0; index < BUNDLE.frames; index++) answer("frame", { index, codec: "jpeg", width: 144, height: 96 }, head());
    answer("done", { seconds: { total: 0.5 }, turns: turn }, head());
    this.answer({ type: "offer", session, turn: turn + 1, fields: { instructions: [`${instruction} Again.`] } });
    this.answer({ type: "offer", session: "another strip", turn: turn + 1, fields: { instructions: ["Zelki jumps."] } });
  }
  answer(message) {
    if (message.type !== "frame") return queueMicrotask(() => this.onmessage?.({ data: JSON.stringify(message) }));
    const header = new TextEncoder().encode(JSON.stringify(message)), data = new Uint8Array(4 + header.length + 8);
    new DataView(data.buffer).setUint32(0, header.length);
    data.set(header, 4);
    queueMicrotask(() => this.onmessage?.({ data: data.buffer }));
  }
}

let now = 0, timers = [], frames = [], numbered = 0;
const later = (repeat) => (work, ms = 0) => (timers.push({ id: ++numbered, at: now + ms, work, ms: repeat ? ms : null }), numbered);
const cancel = (id) => (timers = timers.filter((one) => one.id !== id));
const settle = () => new Promise((then) => setImmediate(then));
const store = () => {
  const kept = new Map();
  return { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, String(text)), removeItem: (key) => kept.delete(key) };
};
const listen = () => count.listeners++;

/** Let so many seconds pass. */
export async function pass(seconds) {
  for (const end = now + 1000 * seconds; now < end; now += FRAME_MS) {
    const due = timers.filter((one) => one.at <= now);
    for (const one of due) {
      if (!timers.includes(one)) continue; // an earlier one has cancelled it
      if (one.ms === null) cancel(one.id);
      else one.at += one.ms;
      one.work();
    }
    for (const work of frames.splice(0)) work(now);
    if (due.length || frames.length > 1) await settle();
  }
  await settle();
}

export const waiting = () => timers.length;

/** Load the page as its address says; then `document` and the rest are there. */
export async function load(folder, address) {
  const ids = new Map(), root = parse(readFileSync(`${folder}/index.html`, "utf8"), ids), body = root.querySelector("body");
  const document = {
    documentElement: root, body, activeElement: body, hidden: false, addEventListener: listen,
    createElement: (tag) => new Element(tag), getElementById: (id) => ids.get(id) ?? null,
    querySelector: (selector) => root.querySelector(selector), querySelectorAll: (selector) => root.querySelectorAll(selector),
  };
  class ImageBitmap { width = 720; height = 480; close() {} }
  const globals = {
    document, crypto: webcrypto, ImageBitmap, ImageData: class {}, WebSocket: Server, location: new URL(address), localStorage: store(), sessionStorage: store(),
    navigator: { languages: ["en"] }, performance: { now: () => now }, matchMedia: () => ({ matches: false }), addEventListener: listen,
    setTimeout: later(false), setInterval: later(true), clearTimeout: cancel, clearInterval: cancel,
    requestAnimationFrame: (work) => frames.push(work), createImageBitmap: async () => new ImageBitmap(), fetch: async () => ({ blob: async () => ({}) }),
  };
  for (const [name, value] of Object.entries({ ...globals, window: globalThis })) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  await import(`file://${folder}/page.js`);
  await pass(1);
}
