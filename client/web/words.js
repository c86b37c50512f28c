// Chips that compose a sentence from the words that the bundle lists, or example sentences where it lists none.

import { PICTURED } from "./pictured.js";
import { does, label, t, wearing, where } from "./strings.js";

const EXAMPLES = { pocket: ["Tofi waves gently in the meadow.", "Mirel in a raincoat jumps smoothly in the snowfield.", "Zelki and Tofi dance smoothly.",
  "Bixo runs quickly in the city at night.", "Dovan sits at the beach.", "Zelki flies wildly in the cloudland at night."] };
const CHANGES = 0.2; // share of the quiet turns in which more than the motion is another
const MOST = { who: 2 }; // chips of a group that may be chosen together

export class Words {
  /** holder: the element that gets the chips. onChange(sentence, dropped): "" when nothing is chosen; a word that gave way. */
  constructor(holder, onChange) {
    this.holder = holder;
    this.onChange = onChange;
    this.chosen = {};
  }

  /** The groups that a bundle's `welcome` makes possible. */
  use(bundle) {
    const groups = { who: bundle.people, motion: bundle.motions, manner: bundle.manners, place: bundle.places, hour: bundle.hours, clothes: bundle.clothes };
    this.groups = bundle.motions ? Object.entries(groups).filter(([, words]) => words?.length) : [["examples", EXAMPLES[bundle.name] ?? []]];
    if (!this.groups[0][1].length) this.groups = [];
    this.pictured = bundle.name === "pocket" ? PICTURED : [];
    this.show();
  }

  show() {
    if (!this.groups) return;
    this.holder.replaceChildren(...this.groups.map(([name, words]) => this.group(name, words)));
    this.onChange(this.sentence());
  }

  group(name, words) {
    const group = document.createElement("div");
    group.className = `group ${name}`;
    group.setAttribute("role", "group");
    const heading = t(name);
    group.setAttribute("aria-label", heading);
    const title = document.createElement("h2");
    title.textContent = heading;
    const chips = words.map((word, place) => {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.textContent = label(word);
      chip.dataset.word = word;
      chip.classList.toggle("pictured", this.pictured.includes(word));
      chip.style.setProperty("--at", this.pictured.indexOf(word));
      chip.tabIndex = place ? -1 : 0;
      chip.setAttribute("aria-pressed", String(this.has(name, word)));
      chip.onclick = () => this.toggle(name, word, chips);
      return chip;
    });
    group.onkeydown = (event) => move(event, chips);
    const line = document.createElement("div");
    line.append(...chips);
    group.append(title, line);
    return group;
  }

  /** What happens in a picture that a game starts from: the chosen motion, or the first of the bundle. */
  get motion() {
    const known = this.groups?.find(([name]) => name === "motion")?.[1] ?? ["wave"], [manner] = this.chosen.manner ?? [];
    return [manner, this.chosen.motion?.[0] ?? known[0]].filter(Boolean).join(" ");
  }

  has(name, word) {
    return (this.chosen[name] ?? []).includes(word);
  }

  toggle(name, word, chips) {
    const rest = (this.chosen[name] ?? []).filter((one) => one !== word), most = MOST[name] ?? 1;
    this.chosen[name] = this.has(name, word) ? rest : [...rest, word].slice(-most);
    for (const chip of chips) chip.setAttribute("aria-pressed", String(this.has(name, chip.dataset.word)));
    this.onChange(this.sentence(), most > 1 && rest.length === most ? rest[0] : undefined);
  }

  /** Choose at random: at first somebody doing something somewhere, later something that changes. Returns the sentence. */
  deal(first) {
    const names = this.groups.map(([name]) => name), one = any(names);
    this.chosen = {};
    this.fill(names.filter((name) => ["motion", "examples"].includes(name) || (first ? ["who", "place"].includes(name) || Math.random() < 0.5 : name === one)));
    return this.sentence();
  }

  /** A sentence for a turn that nobody asked for: somebody else, somewhere else or another hour now and then. */
  quiet(first) {
    const kept = this.chosen;
    const of = (name) => this.groups.find((one) => one[0] === name)?.[1] ?? [], change = any(["who", "place", "hour"]);
    this.chosen = {};
    this.fill(first ? ["who", "motion", "place"] : Math.random() < CHANGES ? ["motion", change] : ["motion"]);
    if (of("manner").length) this.chosen.manner = [any(of("manner").slice(0, 3))];
    const text = this.sentence();
    this.chosen = kept;
    return text;
  }

  /** Choose a word at random in each of these groups that has none yet. */
  fill(names) {
    for (const [name, words] of this.groups) if (names.includes(name) && !this.chosen[name]?.length) this.chosen[name] = [any(words)];
  }

  /** Choose these words again. */
  choose(chosen) {
    this.chosen = chosen;
    this.show();
  }

  /** Nothing is chosen any more, because the visitor writes. */
  release() {
    this.chosen = {};
    for (const chip of this.holder.querySelectorAll("[aria-pressed=true]")) chip.setAttribute("aria-pressed", "false");
  }

  clear() {
    this.release();
    this.onChange("");
  }

  /** The chosen words as an English sentence. */
  sentence() {
    const { who = [], motion, manner, place, hour, clothes, examples } = this.chosen;
    if (examples?.length) return examples[0];
    const parts = [who.join(" and ")];
    if (clothes?.length) parts.push(wearing(clothes[0]));
    if (motion?.length) parts.push(does(motion[0], who));
    if (manner?.length) parts.push(manner[0]);
    if (place?.length) parts.push(where(place[0]));
    if (hour?.length) parts.push(hour[0] === "night" ? "at night" : hour[0] === "day" ? "by day" : hour[0]);
    const text = parts.filter(Boolean).join(" ");
    if (!text) return "";
    return who.length ? `${text}.` : `Now ${text}.`;
  }
}

function any(words) {
  return words[Math.floor(Math.random() * words.length)];
}

/** Arrow keys move within a group, so that Tab goes from group to group. */
export function move(event, chips) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const at = chips.indexOf(document.activeElement);
  if (!step || at < 0) return;
  event.preventDefault();
  const next = chips[(at + step + chips.length) % chips.length];
  for (const chip of chips) chip.tabIndex = chip === next ? 0 : -1;
  next.focus();
}
