// The character's values as bars that move to their new value, with the change beside it.

import { t } from "./strings.js";

const POINTS_A_STRENGTH = 5;

export class Values {
  constructor(list) {
    this.list = list;
    this.before = {};
  }

  translate() {
    if (this.last) this.show(...this.last);
  }

  show(values, strengths = {}) {
    this.last = [values, strengths];
    this.list.replaceChildren(...Object.keys(values).map((name) => {
      const row = document.createElement("div"), title = document.createElement("dt"), value = document.createElement("dd"), bar = document.createElement("i");
      const change = POINTS_A_STRENGTH * (strengths[name] ?? 0);
      title.textContent = t(name) ?? name;
      value.textContent = values[name];
      if (change) value.dataset.change = change > 0 ? `+${change}` : `−${-change}`;
      value.append(bar);
      row.append(title, value);
      row.style.setProperty("--value", this.before[name] ?? values[name]);
      requestAnimationFrame(() => requestAnimationFrame(() => row.style.setProperty("--value", values[name])));
      return row;
    }));
    this.before = values;
  }
}
