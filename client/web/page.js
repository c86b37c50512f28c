// The page: joins the connection, the game, the picture, the chips and the filmstrip, and shows what they say.

import { Connection } from "./connection.js";
import { Film } from "./film.js";
import { Game } from "./game.js";
import { Screen } from "./screen.js";
import { LANGUAGES, setLanguage, t } from "./strings.js";
import { Words } from "./words.js";

const LANGUAGE = "animegamer.language", VALUES = ["stamina", "social", "entertainment"];
const ATTRACT = { file: "attract.jpg", count: 17, fps: 8 };
const $ = (id) => document.getElementById(id);
const kiosk = new URLSearchParams(location.search).has("kiosk");
const view = { bundle: null, turn: 0, turns: 0, drawing: false, instruction: "", status: () => "", scene: () => "", values: null };

const screen = new Screen($("picture"), showFrame);
const words = new Words($("chips"), (sentence) => {
  $("sentence").textContent = sentence || t("empty");
  $("sentence").classList.toggle("empty", !sentence);
  showButtons();
});
const film = new Film($("turns"), (turn) => {
  if (view.drawing || !connection.up) return;
  view.turn = turn;
  view.instruction = film.turns.find((one) => one.turn === turn)?.instruction ?? "";
  game.replay(turn);
  film.mark(turn);
  showRewind();
});
const connection = new Connection(up, down);
const game = new Game(connection, {
  opened({ turns, character, lost }) {
    Object.assign(view, { turns, turn: turns, drawing: false });
    film.use(game.session, turns);
    showValues(character);
    say(() => (lost ? t("lost") : ""));
    if (!turns) attract();
    showRewind();
    showButtons();
  },
  listed: (turns) => film.set(turns),
  event: onEvent,
  waits: (error) => say(() => (error.code === "starting" ? t("starting") : t(error.code) ?? error.text)),
  ended(error) {
    view.drawing = false;
    document.body.classList.remove("drawing");
    if (error) say(() => (error.code === "cancelled" ? t("stopped") : t(error.code) ?? [error.text, error.do].filter(Boolean).join(" ")), error.code !== "cancelled");
    if (error) progress(0);
    showButtons();
  },
});

function up(welcome) {
  document.body.classList.remove("off");
  view.bundle = welcome.bundle;
  words.use(welcome.bundle);
  marks(welcome.bundle.frames);
  say(() => (welcome.state === "ready" ? "" : t("starting")));
  game.open();
}

function down() {
  document.body.classList.add("off");
  say(() => t("off"));
  showButtons();
}

function onEvent(message) {
  const { fields } = message;
  if (message.type === "accepted") {
    Object.assign(view, { turn: message.turn, instruction: fields.instruction, drawing: true, fresh: !fields.replayed });
    screen.begin(view.bundle.frames, view.bundle.fps);
    document.body.classList.toggle("drawing", message.turn > view.turns);
    say(() => (fields.place ? t("waiting", { n: fields.place }) : t("thinking")));
    $("understood").textContent = $("notice").textContent = "";
    [...$("chart").children].forEach((one) => one.classList.remove("here"));
    showButtons();
  } else if (message.type === "understood") {
    $("understood").textContent = fields.text;
    $("notice").textContent = fields.notice ?? "";
  } else if (message.type === "state") showValues(fields.shown, fields);
  else if (message.type === "progress") {
    progress(fields.step / fields.steps);
    say(() => t("drawing", { n: fields.step, of: fields.steps }));
  } else if (message.type === "frame") {
    document.body.classList.remove("drawing");
    scene();
    $("chart").children[fields.index]?.classList.add("here");
    view.last = screen.take(fields.index, picture(fields, message.buffer));
  } else if (message.type === "restarting") say(() => t("restarting"));
  else if (message.type === "done") done(message);
}

function picture({ codec, width, height }, bytes) {
  return codec === "raw" ? new ImageData(new Uint8ClampedArray(bytes), width, height) : new Blob([bytes], { type: "image/jpeg" });
}

async function done({ turn, fields }) {
  if (turn > view.turns) view.turns = turn;
  const seconds = fields.seconds.total;
  say(() => t("seconds", { n: seconds.toFixed(1) }));
  progress(0);
  await view.last;
  if (view.turn !== turn || !screen.clip?.frames[0]) return;
  film.add(turn, view.instruction, screen.thumbnail());
  showRewind();
}

function scene() {
  const { turn, instruction } = view;
  view.scene = () => [t("turn", { n: turn }), t("picture", { n: turn, text: instruction })];
  showScene();
}

function showScene() {
  const [short, long] = view.scene();
  $("scene").textContent = short;
  $("picture").setAttribute("aria-label", long);
}

async function attract() {
  view.scene = () => [t("attract"), t("nothing")];
  showScene();
  $("understood").textContent = $("notice").textContent = "";
  const picture = await createImageBitmap(await (await fetch(ATTRACT.file)).blob());
  if (view.turn || view.drawing) return;
  screen.begin(ATTRACT.count, ATTRACT.fps);
  const height = picture.height / ATTRACT.count;
  for (let i = 0; i < ATTRACT.count; i++) screen.take(i, await createImageBitmap(picture, 0, i * height, picture.width, height));
}

function marks(count) {
  if ($("chart").childElementCount === count) return;
  $("chart").replaceChildren(...Array.from({ length: count }, () => document.createElement("i")));
}

function showFrame(index) {
  [...$("chart").children].forEach((one, at) => one.classList.toggle("now", at === index));
  $("again").hidden = !(screen.still.matches && index === screen.clip.count - 1);
}

function progress(share) {
  $("chart").style.setProperty("--done", share);
  $("chart").setAttribute("aria-valuenow", Math.round(100 * share));
}

function say(text, wrong = false) {
  view.status = text;
  $("status").textContent = text() || (view.bundle?.random_weights && !document.body.classList.contains("off") ? t("noise") : "");
  $("status").classList.toggle("wrong", wrong);
}

function showValues(values, strengths = {}) {
  view.values = [values, strengths];
  $("values").replaceChildren(...VALUES.map((name) => {
    const row = document.createElement("div"), title = document.createElement("dt"), value = document.createElement("dd"), bar = document.createElement("meter");
    const change = 5 * (strengths[name] ?? 0), before = view.bars?.[name] ?? values[name];
    title.textContent = t(name);
    value.textContent = values[name];
    if (change) value.dataset.change = change > 0 ? `+${change}` : `−${-change}`;
    Object.assign(bar, { min: 0, max: 100, value: values[name], ariaLabel: t(name) });
    row.append(title, bar, value);
    row.style.setProperty("--value", before);
    requestAnimationFrame(() => requestAnimationFrame(() => row.style.setProperty("--value", values[name])));
    return row;
  }));
  view.bars = values;
}

function showRewind() {
  const earlier = view.turn && view.turn < view.turns;
  $("rewinding").hidden = !earlier;
  $("rewinding").firstElementChild.textContent = t("rewindAsk", { n: view.turn });
  $("rewind").textContent = t("rewind");
}

function showButtons() {
  const text = $("text").value.trim(), ready = connection?.up && game?.session && !view.drawing;
  $("draw").disabled = !ready || !(text || words.sentence());
  $("deal").disabled = !ready || !words.groups?.length;
  $("deal").hidden = Boolean(words.groups && !words.groups.length);
  $("cancel").hidden = !(view.drawing && game.pending);
  $("fresh").disabled = !ready || !view.turns;
  $("rewind").disabled = !ready;
}

function translate() {
  document.documentElement.lang = $("language").value;
  document.querySelectorAll("[data-t]").forEach((one) => (one.textContent = t(one.dataset.t)));
  document.querySelectorAll("[data-label]").forEach((one) => one.setAttribute("aria-label", t(one.dataset.label)));
  document.querySelectorAll("[data-holder]").forEach((one) => (one.placeholder = t(one.dataset.holder)));
  words.show();
  film.show();
  showRewind();
  if (view.values) showValues(...view.values);
  if (view.scene()) showScene();
  say(view.status);
}

$("sheet").onsubmit = (event) => {
  event.preventDefault();
  const text = $("text").value.trim() || words.sentence();
  if (!text || $("draw").disabled) return;
  $("text").value = "";
  view.drawing = true;
  words.clear();
  game.play(text);
  say(() => t("thinking"));
  showButtons();
};
$("text").oninput = showButtons;
$("deal").onclick = () => words.deal();
$("cancel").onclick = () => game.cancel();
$("fresh").onclick = () => game.fresh();
$("again").onclick = () => screen.again();
$("rewind").onclick = () => game.rewind(view.turn).catch((error) => say(() => error.text, true));
$("language").onchange = () => {
  localStorage.setItem(LANGUAGE, setLanguage($("language").value));
  translate();
};
document.body.classList.toggle("kiosk", kiosk);
const wanted = [localStorage.getItem(LANGUAGE), ...navigator.languages.map((one) => one.slice(0, 2))];
$("language").value = setLanguage(wanted.find((one) => LANGUAGES.includes(one)));
say(() => t("off"));
translate();
attract();
