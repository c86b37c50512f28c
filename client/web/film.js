// The filmstrips: one frame for each turn, and a strip of its own for each branch. This browser keeps them.

import { keep, keptValue } from "./kept.js";
import { t } from "./strings.js";

const KEY = "animegamer.film", MOST_PICTURES = 80;
export const MOST_STRIPS = 8;

export class Film {
  /** onChoose(strip, turn): when a frame is chosen; `strip` has the token of its game. */
  constructor(holder, onChoose) {
    this.holder = holder;
    this.onChoose = onChoose;
    this.at = 0;
    this.key = KEY;
    this.read();
    holder.onkeydown = (event) => this.moveFocus(event);
  }

  /** Take what this browser kept, also when another tab of it wrote. */
  read() {
    const { strips, pictures } = keptValue(KEY, (one) => typeof one?.pictures === "object" && Array.isArray(one.strips) && one.strips.every(isStrip)) ?? {};
    this.strips = strips ?? [];
    this.pictures = pictures ?? {};
  }

  keep() {
    for (const key of Object.keys(this.pictures).slice(0, -MOST_PICTURES)) delete this.pictures[key];
    const written = (pictures) => keep(KEY, JSON.stringify({ strips: this.strips, pictures }));
    written(this.pictures) || written({}); // the browser's store is full: after a reload the strips show words alone
  }

  get current() {
    return this.strips.find((one) => one.session === this.session);
  }

  /** Turn to the strip of a game, which has so many turns. A game that is on no strip begins a film of its own. */
  use(session, token, count, picture = false) {
    this.session = session;
    if (!this.current) Object.assign(this, { strips: [{ session, token, parent: null, from: 0, turns: [], picture }], pictures: {} });
    this.current.turns = this.current.turns.filter((one) => one.turn <= count);
    for (const child of this.children(this.current)) {
      if (child.from > count) child.from = count; // the turns that were cut off here are still in the branch
    }
    this.show();
  }

  /** A second game has the turns of the current one up to a turn, and goes on from there. */
  branch(session, token, from) {
    const parent = this.current, turns = parent.turns.filter((one) => one.turn <= from);
    for (const { turn } of turns) this.pictures[`${session} ${turn}`] = this.pictures[`${parent.session} ${turn}`];
    const home = this.owner(parent, from); // a branch from a shared turn belongs to the strip that shows the turn
    this.strips.push({ session, token, parent: home.session, from, turns, picture: parent.picture });
    this.keep();
  }

  /** Take a game's strip away; its branches stay, with all of their turns. */
  drop(session) {
    const gone = this.strips.find((one) => one.session === session);
    this.strips = this.strips.filter((one) => one !== gone);
    for (const child of this.children(gone)) Object.assign(child, { parent: gone.parent, from: gone.parent ? Math.min(gone.from, child.from) : 0 });
    this.keep();
  }

  /** The oldest strip on which nothing that is shown depends, when there are too many; else undefined. */
  get spare() {
    const line = this.line();
    return this.strips.length < MOST_STRIPS ? undefined : this.strips.find((one) => !line.includes(one) && !this.children(one).length);
  }

  /** The instructions of the current game, if they are all of it: none began with a picture or are no longer listed. */
  get story() {
    const { turns, picture } = this.current ?? {};
    return turns?.length && !picture && turns.every((one, at) => one.turn === at + 1) ? turns.map((one) => one.instruction) : null;
  }

  children(strip) {
    return this.strips.filter((one) => one.parent === strip?.session && one.parent);
  }

  owner(strip, turn) {
    const parent = this.strips.find((one) => one.session === strip.parent);
    return parent && turn <= strip.from ? this.owner(parent, turn) : strip;
  }

  /** The current strip and those that it branched from. */
  line() {
    const line = [];
    for (let one = this.current; one; one = this.strips.find((other) => other.session === one.parent)) line.push(one);
    return line;
  }

  set(turns) {
    this.current.turns = turns.map(({ turn, instruction }) => ({ turn, instruction }));
    this.keep();
    this.show();
  }

  add(turn, instruction, picture) {
    const { turns } = this.current;
    if (!turns.some((one) => one.turn === turn)) turns.push({ turn, instruction });
    const key = `${this.session} ${turn}`;
    delete this.pictures[key]; // the newest is kept longest
    this.pictures[key] = picture;
    this.keep();
    this.mark(turn);
  }

  /** Say which turn is on the table. */
  mark(turn) {
    this.at = turn;
    this.show();
    const one = this.holder.querySelector("[aria-current]");
    const list = one?.closest("ol");
    if (one) this.holder.scrollTo({ left: one.parentElement.offsetLeft - this.holder.clientWidth / 2, top: list.offsetTop + list.offsetHeight - this.holder.clientHeight, behavior: "auto" });
  }

  /** The strips in the order of a tree: each under the one that it branched from. */
  rows(strip = this.strips.find((one) => !one.parent)) {
    return strip ? [strip, ...this.children(strip).sort((one, other) => other.from - one.from).flatMap((one) => this.rows(one))] : [];
  }

  show() {
    this.holder.closest("section").hidden = !this.strips.some((one) => one.turns.length);
    const focused = this.holder.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const rows = this.rows(), line = this.line();
    this.holder.replaceChildren(...rows.map((strip, row) => {
      const list = document.createElement("ol"), above = rows.findIndex((one) => one.session === strip.parent);
      list.style.setProperty("--from", strip.from);
      list.style.setProperty("--up", row - above);
      list.classList.toggle("branch", Boolean(strip.parent));
      list.setAttribute("aria-label", t("strip", { n: row + 1 }));
      const turns = strip.turns.filter((one) => !strip.parent || one.turn > strip.from);
      list.append(...turns.map((one) => this.frame(strip, one, line)));
      list.hidden = !turns.length;
      return list;
    }));
    const buttons = [...this.holder.querySelectorAll("button")];
    const entry = buttons.find((one) => one.hasAttribute("aria-current")) ?? buttons.at(-1);
    if (entry) entry.tabIndex = 0;
    if (focused) buttons.find((one) => one.dataset.key === focused)?.focus({ preventScroll: true });
  }

  frame(strip, { turn, instruction }, line) {
    const item = document.createElement("li"), button = document.createElement("button");
    const shown = line.includes(strip) && this.owner(this.current, turn) === strip;
    const address = this.pictures[`${strip.session} ${turn}`];
    item.classList.toggle("line", shown);
    button.type = "button";
    button.tabIndex = -1;
    button.dataset.key = `${strip.session} ${turn}`;
    button.setAttribute("aria-label", `${t("turn", { n: turn })}: ${instruction}`);
    if (shown && turn === this.at) button.setAttribute("aria-current", "true");
    const picture = document.createElement(address ? "img" : "i");
    if (address) Object.assign(picture, { src: address, alt: "" });
    const number = document.createElement("b"), words = document.createElement("span");
    number.dataset.turn = turn; // the style shows it: the button's name says more than the number
    words.textContent = instruction;
    button.title = instruction;
    button.append(number, picture, words);
    button.onclick = () => this.onChoose(shown ? this.current : strip, turn);
    item.append(button);
    return item;
  }

  /** Arrow keys move over the frames as they lie on the table; Tab leaves the film. */
  moveFocus(event) {
    const at = document.activeElement.closest("li");
    if (!at || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = { ArrowLeft: at.previousElementSibling, ArrowRight: at.nextElementSibling }[event.key] ?? this.across(at, event.key);
    next?.querySelector("button").focus();
  }

  across(item, key) {
    const lists = [...this.holder.children].filter((one) => !one.hidden), left = item.getBoundingClientRect().left;
    const list = lists[lists.indexOf(item.parentElement) + ({ ArrowUp: -1, ArrowDown: 1 }[key] ?? NaN)];
    const distance = (one) => Math.abs(one.getBoundingClientRect().left - left);
    return list && [...list.children].sort((one, other) => distance(one) - distance(other))[0];
  }
}

function isStrip({ session, token, parent, turns }, at, all) {
  return typeof session === "string" && typeof token === "string" && (parent === null || all.slice(0, at).some((one) => one.session === parent))
    && Array.isArray(turns) && turns.every((one) => Number.isInteger(one?.turn));
}
