// The filmstrip: one frame for each turn, with a small picture that this browser keeps.

import { t } from "./strings.js";

const KEY = "animegamer.film", MOST = 60;

export class Film {
  /** onChoose(turn): when a frame of the strip is chosen. */
  constructor(list, onChoose) {
    this.list = list;
    this.onChoose = onChoose;
    this.turns = [];
    this.session = "";
    this.pictures = {};
    this.at = 0;
  }

  /** Turn to the strip of a session, which has so many turns. */
  use(session, count) {
    this.session = session;
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    this.pictures = kept.session === session ? kept.pictures : {};
    for (const number of Object.keys(this.pictures)) if (number > count) delete this.pictures[number];
    this.turns = this.turns.filter((one) => one.turn <= count);
    if (!count) this.turns = [];
    this.show();
  }

  set(turns) {
    this.turns = turns.map(({ turn, instruction }) => ({ turn, instruction }));
    this.show();
  }

  add(turn, instruction, picture) {
    if (!this.turns.some((one) => one.turn === turn)) this.turns.push({ turn, instruction });
    this.pictures[turn] = picture;
    for (const number of Object.keys(this.pictures).slice(0, -MOST)) delete this.pictures[number];
    try {
      localStorage.setItem(KEY, JSON.stringify({ session: this.session, pictures: this.pictures }));
    } catch {
      this.pictures = { [turn]: picture }; // the browser's store is full: the strip shows words alone
    }
    this.mark(turn);
  }

  /** Say which turn is on the table. */
  mark(turn) {
    this.at = turn;
    this.show();
    const one = this.list.querySelector("[aria-current]");
    if (one) this.list.scrollTo({ left: one.parentElement.offsetLeft - this.list.clientWidth / 2, behavior: "auto" });
  }

  show() {
    this.list.closest("section").hidden = !this.turns.length;
    this.list.replaceChildren(...this.turns.map(({ turn, instruction }) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", `${t("turn", { n: turn })}: ${instruction}`);
      if (turn === this.at) button.setAttribute("aria-current", "true");
      const picture = document.createElement(this.pictures[turn] ? "img" : "i");
      if (this.pictures[turn]) Object.assign(picture, { src: this.pictures[turn], alt: "" });
      const words = document.createElement("span");
      words.textContent = `${turn}  ${instruction}`;
      button.append(picture, words);
      button.onclick = () => this.onChoose(turn);
      item.append(button);
      return item;
    }));
  }
}
