// Plays the part of a WebGL build's page: node page.js AnimeGamer.jslib. Each line on standard input calls a function of
// the library; its arguments are numbers, or texts (s) and arrays (b) in base64, which it gets as pointers. The answer is
// what it returns, and the array as it is then.
//
// As emscripten does, it takes the text of each function, so that nothing around it is seen, and of the library's objects
// ($NAME) those that the function depends on; HEAPU8 is another array whenever memory has grown.
const { readFileSync } = require("fs");

const library = {};
const autoAddDeps = (added, name) => {
  for (const key of Object.keys(added)) if (typeof added[key] === "function") (added[key + "__deps"] ||= []).push(name);
};
new Function("mergeInto", "LibraryManager", "autoAddDeps", readFileSync(process.argv[2], "utf8"))(
  Object.assign, { library }, autoAddDeps);

let heap = new Uint8Array(0);
const names = Object.keys(library).filter((name) => typeof library[name] === "function");
const needed = new Set(names.flatMap((name) => library[name + "__deps"] ?? []));
const text = [
  '"use strict"; let HEAPU8;',
  ...[...needed].map((name) => `var ${name.slice(1)} = ${JSON.stringify(library[name])};`),
  ...names.map((name) => `var _${name} = ${library[name]};`),
  `return { grow: (heap) => { HEAPU8 = heap; }, ${names.map((name) => `${name}: _${name}`)} };`,
].join("\n");
// Node's, which does not say `close` where nothing listens, as browsers do.
class BrowserWebSocket extends WebSocket {
  constructor(address, subprotocol) {
    super(address, subprotocol);
    this.addEventListener("error", () => this.onclose?.({ code: 1006 }));
  }
}

const UTF8ToString = (at) => Buffer.from(heap.subarray(at, heap.indexOf(0, at))).toString();
const page = new Function("UTF8ToString", "WebSocket", text)(UTF8ToString, BrowserWebSocket);

function call(line) {
  const [name, ...words] = line.split(" ");
  const parts = words.map((word) => "sb".includes(word[0]) && Buffer.from(word.slice(1), "base64"));
  structuredClone(heap.buffer, { transfer: [heap.buffer] }); // whoever kept it has nothing now
  heap = new Uint8Array(16 + parts.reduce((sum, part) => sum + (part ? part.length + 1 : 0), 0));
  let at = 8, array = "";
  const pointers = parts.map((part, n) => {
    if (!part) return Number(words[n]);
    heap.set(part, at);
    at += part.length + 1;
    return at - part.length - 1;
  });
  page.grow(heap);
  const result = page[name](...pointers) ?? 0;
  parts.forEach((part, n) => {
    if (words[n][0] === "b") array = Buffer.from(heap.subarray(pointers[n], pointers[n] + part.length)).toString("base64");
  });
  console.log(`${result} ${array}`);
}

require("readline").createInterface({ input: process.stdin }).on("line", call).on("close", () => process.exit());
