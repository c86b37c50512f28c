// Sentences whose turns are drawn already, each on a slip of its own: it plays at once. Knows sentences, not messages.

import { t } from "./strings.js";
import { move } from "./words.js";

const MOST = 3;

export class Offers {
  /** holder: hidden until there is something to show. onPick(sentence). */
  constructor(holder, onPick) {
    this.holder = holder;
    this.slips = Array.from({ length: MOST }, (_, place) => {
      const slip = document.createElement("button");
      Object.assign(slip, { type: "button", lang: "en" });
      slip.hidden = true;
      slip.tabIndex = place ? -1 : 0;
      slip.onclick = () => onPick(slip.textContent);
      return slip;
    });
    holder.querySelector("div").append(...this.slips);
    holder.onkeydown = (event) => move(event, this.slips.filter((one) => !one.hidden));
    this.show([], false);
  }

  /**
   * Show these sentences. One that was there stays where it is, a new one takes a free slip. A slip that was once used
   * keeps its place, empty, so that nothing moves under a finger and the keyboard's focus stays.
   */
  show(sentences, able) {
    const wanted = sentences.slice(0, MOST);
    for (const slip of this.slips) if (!wanted.includes(slip.textContent)) slip.textContent = slip.title = "";
    for (const sentence of wanted) {
      if (this.slips.some((one) => one.textContent === sentence)) continue;
      const slip = this.slips.find((one) => !one.textContent);
      slip.textContent = slip.title = sentence;
      slip.hidden = this.holder.hidden = false;
    }
    for (const slip of this.slips) {
      slip.setAttribute("aria-disabled", String(!able || !slip.textContent));
      slip.textContent ? slip.removeAttribute("aria-label") : slip.setAttribute("aria-label", t("slip"));
    }
    const said = wanted.length ? t("offered") : "", line = this.holder.querySelector("p");
    if (line.textContent !== said) line.textContent = said; // once for a turn: a screen reader reads what is set
  }
}
