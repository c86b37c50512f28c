// The page: joins the connection, the game, the picture, the chips and the filmstrips, and shows what they say.

import { Connection } from "./connection.js";
import { Film } from "./film.js";
import { Game } from "./game.js";
import { keep, kept } from "./kept.js";
import { Offers } from "./offers.js";
import { jpeg, listen } from "./photo.js";
import { Run } from "./run.js";
import { Screen } from "./screen.js";
import { Recorder, addressOf, storyOf } from "./story.js";
import { LANGUAGES, label, setLanguage, t, told } from "./strings.js";
import { Values } from "./values.js";
import { Words } from "./words.js";

const LANGUAGE = "animegamer.language";
const ATTRACT = { count: 17, fps: 8 };
const BRIEF = ["busy", "rate_limited"];
const GHOST_MS = 150, WISH_MS = 400;
const $ = (id) => document.getElementById(id);
const kiosk = new URLSearchParams(location.search).has("kiosk");
const view = { bundle: null, offers: new Map(), held: null, turn: 0, turns: 0, drawing: false, whole: false, instruction: "", status: () => "", took: () => "", scene: () => "", base: 0 };

const screen = new Screen($("picture"), showFrame);
const run = new Run(screen, {
  table() {
    const newest = screen.begun === view.clip && (view.whole || !view.turn); // or else it is not played yet
    return newest && !view.drawing && connection.up && game.session && !document.hidden ? view.turn : null;
  },
  play(sentence) {
    if (sentence.asked) view.base = view.turns + 1;
    if (sentence.asked && run.lives) say(() => t("lives"));
    view.asked = sentence;
    play(sentence.text);
  },
  show(turn) {
    run.asks();
    view.instruction = film.current.turns.find((one) => one.turn === turn)?.instruction ?? "";
    game.replay(turn);
  },
  quiet: () => words.quiet(!view.turns),
  back() {
    view.drawing = true;
    game.rewind(view.base).catch(() => run.stop());
  },
  changed: showButtons,
});
const values = new Values($("values"));
const words = new Words($("chips"), (sentence, dropped) => {
  if (sentence || $("text").value === view.composed) $("text").value = sentence;
  view.composed = sentence;
  $("sentence").textContent = sentence || t("empty");
  $("sentence").classList.toggle("empty", !sentence);
  if (dropped) say(() => t("room", { who: label(dropped) }));
  wish(sentence);
  showButtons();
});
const film = new Film($("turns"), (strip, turn) => {
  if (view.drawing || !connection.up) return;
  if (run.active) run.stop();
  if (strip.session !== game.session) return game.go(strip.token, turn);
  view.turn = turn;
  view.instruction = film.current.turns.find((one) => one.turn === turn)?.instruction ?? "";
  game.replay(turn);
  film.mark(turn);
  showBranching();
});
const offers = new Offers($("ready"), play);
const connection = new Connection(up, down, (offer) => {
  view.offers.set(offer.session, offer); // a film's other strips wait for their next turn, too
  view.ahead = true;
  showButtons();
});
const game = new Game(connection, {
  opened({ turns, character, lost, picture, understood }) {
    Object.assign(view, { turns, turn: turns, drawing: false });
    film.use(game.session, game.token, turns, Boolean(picture));
    view.base = Math.min(view.base, turns);
    if (!game.pending) view.before = null;
    for (const session of view.offers.keys()) if (!film.strips.some((one) => one.session === session)) view.offers.delete(session);
    values.show(character);
    say(() => (lost ? t("lost") : run.active && run.lives ? t("lives") : ""));
    if (picture) showStart(picture, understood);
    else if (!turns && !run.active) attract();
    showBranching();
    showButtons();
    if (view.story) offerStory();
    run.goOn();
  },
  branched(session, token, turn) {
    film.branch(session, token, turn);
    film.use(session, token, turn);
    view.turns = turn;
  },
  gone: (token) => film.strips.filter((one) => one.token === token).forEach((one) => film.drop(one.session)),
  listed: (turns) => film.set(turns),
  began() {
    checkpoint();
    Object.assign(view, { drawing: true, whole: false });
    showButtons();
  },
  event: (message) => (view.held ? hold(message) : onEvent(message)),
  waits(error) {
    release();
    say(() => (error.code === "starting" ? t("starting") : t(error.code) ?? error.text));
  },
  ended(error, instruction) {
    release();
    view.drawing = false;
    drawing(false);
    const again = run.active && BRIEF.includes(error?.code);
    const undoes = error?.code === "undo" && view.turns > 0;
    const vain = run.active && run.lives && error?.code === "not_understood"; // other words follow
    if (error) refused(error, again || undoes ? "" : instruction);
    if (vain && view.asked?.quiet) say(() => t("lives"));
    if (undoes) undo();
    view.before = null;
    if (again) run.rest(instruction && view.asked);
    else if (error && run.active && !vain) run.stop();
    showButtons();
    run.goOn();
  },
});

function up(welcome) {
  document.body.classList.remove("off");
  view.bundle = welcome.bundle;
  view.offers.clear();
  view.limits = { n: welcome.limits?.text_characters };
  view.pictures = welcome.capabilities?.includes("picture") && !kiosk;
  words.use(welcome.bundle);
  marks(welcome.bundle.frames);
  say(() => (welcome.state === "ready" ? "" : t("starting")));
  game.open();
}

function down() {
  release();
  document.body.classList.add("off");
  say(() => t("off"));
  showButtons();
}

/**
 * The picture of a sentence that is ready comes within a few frames of the screen. Each change that is drawn before would
 * make it later, so what a turn says is shown together with its first picture; or after GHOST_MS, if that does not come.
 */
function awaitPicture() {
  view.held = [];
  view.holds = setTimeout(release, GHOST_MS);
}

function hold(message) {
  view.held.push(message);
  if (message.type !== "frame" || message.fields.index) return;
  createImageBitmap(picture(message)).then((bitmap) => {
    message.bitmap = bitmap;
    release();
  }, release);
}

function release() {
  const { held } = view;
  if (!held) return;
  clearTimeout(view.holds);
  view.held = null;
  say(() => t("thinking"));
  held.forEach(onEvent);
  showBranching();
  showButtons();
}

function onEvent(message) {
  const { fields, turn } = message;
  if (message.type === "accepted") {
    if (turn > view.turns + 1) game.list(); // another window of this browser has gone on
    Object.assign(view, { turn, instruction: fields.instruction, drawing: true, whole: false, took: () => "" });
    if (turn > view.turns) view.offers.delete(game.session);
    screen.begin(view.bundle.frames, view.bundle.fps);
    run.coming = [];
    run.later(() => tell());
    drawing(turn > view.turns && !run.active);
    if (!run.active) say(() => (fields.place ? t("waiting", { n: fields.place, s: Math.ceil(fields.estimate_s) }) : t("thinking")));
    if (!run.active) [...$("chart").children].forEach((one) => one.classList.remove("here"));
    showButtons();
  } else if (message.type === "understood") run.later(() => tell(fields.answer));
  else if (message.type === "state") values.show(fields.shown, fields);
  else if (message.type === "progress" && !run.active) {
    progress(fields.step / fields.steps);
    say(() => t("drawing", { n: fields.step, of: fields.steps }));
  } else if (message.type === "frame") {
    drawing(false);
    if (!fields.index) {
      run.arrives();
      const { turn: number, instruction } = view;
      run.later(() => scene(number, instruction));
    }
    view.last = screen.take(fields.index, message.bitmap ?? picture(message))
      .then((taken) => taken && $("chart").children[fields.index]?.classList.add("here"));
  } else if (message.type === "restarting") say(() => t("restarting"));
  else if (message.type === "done") done(message);
}

/** Show what a turn changes and what it cannot; without an answer, nothing. */
function tell(answer = []) {
  view.answer = answer;
  [$("understood").textContent, $("notice").textContent] = told(answer);
}

/** Remember what is on the table, until the turn that has begun is whole. */
function checkpoint() {
  if (view.before) return;
  const { turn, instruction, whole, took, scene, answer } = view;
  view.before = { table: { turn, instruction, whole, took, scene, answer }, values: values.last };
  screen.settle();
}

/** A turn that will not be whole leaves the table as it was, and gives back what was said. */
function refused(error, text) {
  if (view.before) {
    const { table, values: shown } = view.before;
    Object.assign(view, table);
    screen.revert();
    tell(view.answer);
    [...$("chart").children].forEach((one) => one.classList.toggle("here", view.whole));
    if (shown) values.show(...shown);
    if (view.scene()) showScene();
    film.mark(view.turn);
    showBranching();
  }
  progress(0);
  const room = !$("text").value.trim();
  if (text && room && !view.asked?.quiet) {
    if (text === view.asked?.text) words.choose(view.asked.chosen);
    $("text").value = text;
  }
  tellError(error, text && !room ? text : "");
}

/** The visitor's words take the last turn back. */
function undo() {
  const n = view.turns;
  game.rewind(n - 1).then(() => {
    view.news = () => t("undone", { n });
    n > 1 ? game.replay(n - 1) : say(view.news);
  }, tellError);
}

/** The clip before becomes a guide once it is clear that the next one takes a while: that is work for the machine, too. */
function drawing(now) {
  clearTimeout(view.soon);
  if (now) view.soon = setTimeout(() => (screen.ghost = true), GHOST_MS);
  else screen.ghost = false;
  document.body.classList.toggle("drawing", now);
}

function picture({ buffer }) {
  return new Blob([buffer], { type: "image/jpeg" });
}

async function done({ turn, fields }) {
  if (turn > view.turns) view.turns = turn;
  const seconds = fields.seconds.total.toFixed(1);
  view.took = () => t("seconds", { n: seconds });
  if (!run.active) say(view.news ?? (() => ""));
  view.news = null;
  progress(0);
  await view.last;
  if (view.turn !== turn || !screen.last) return;
  view.whole = true;
  film.add(turn, view.instruction, screen.thumbnail());
  showBranching();
  showButtons();
  run.goOn();
}

function scene(turn, instruction) {
  view.caption = instruction;
  view.scene = () => [t("turn", { n: turn }), t("clip", { n: turn, text: instruction })];
  showScene();
}

function showScene() {
  const [short, long] = view.scene();
  $("scene").textContent = short;
  $("picture").setAttribute("aria-label", long);
}

async function attract() {
  view.scene = () => [t("attract"), t("nothing")];
  view.whole = false;
  showScene();
  tell();
  const picture = await createImageBitmap(await (await fetch(new URL("attract.jpg", import.meta.url))).blob());
  if (view.turn || view.drawing) return;
  screen.begin(ATTRACT.count, ATTRACT.fps);
  const height = picture.height / ATTRACT.count;
  for (let i = 0; i < ATTRACT.count; i++) screen.take(i, await createImageBitmap(picture, 0, i * height, picture.width, height));
}

/** The picture that the game starts from lies on the table until the first turn is drawn. */
async function showStart(picture, understood) {
  view.scene = () => [t("photo"), t("began")];
  view.took = () => "";
  view.whole = false;
  showScene();
  tell(understood && seen(understood));
  screen.begin(1, view.bundle.fps);
  screen.take(0, await createImageBitmap(picture));
  say(() => t("began"));
}

/** The scene of a start picture, as an answer. */
function seen({ people, motion, place, hour }) {
  const names = people.map((one) => one.name);
  return [{ code: "motion", people: names, value: motion }, { code: "place", value: place }, { code: "hour", value: hour }];
}

/** Begin a game from a file with a picture. */
async function startFrom(file) {
  if (!view.pictures || view.drawing || !game.session || !(await mayEnd())) return;
  view.drawing = true;
  say(() => t("looking"));
  showButtons();
  try {
    const games = [...film.strips];
    await game.openFrom(await jpeg(file, view.bundle), words.motion);
    for (const one of games) game.close(one.session, one.token);
  } catch (error) {
    view.drawing = false;
    tellError(error.code && error.text ? error : { code: "picture" });
  }
  showButtons();
}

function marks(count) {
  if ($("chart").childElementCount === count) return;
  $("chart").replaceChildren(...Array.from({ length: count }, () => document.createElement("i")));
}

function showFrame(index, count, clip) {
  if (clip !== view.clip) {
    view.clip = clip;
    run.begun();
  }
  [...$("chart").children].forEach((one, at) => one.classList.toggle("now", at === index));
  $("again").hidden = run.active || !(screen.still.matches && index === count - 1);
  run.shows((count - index) / (view.bundle?.fps ?? ATTRACT.fps), index === count - 1);
}

function progress(share) {
  $("chart").style.setProperty("--done", share);
  $("chart").setAttribute("aria-valuenow", Math.round(100 * share));
}

function say(text, wrong = false) {
  const idle = document.body.classList.contains("off") ? "" : view.bundle?.random_weights ? t("noise") : "";
  view.status = text;
  $("status").textContent = text() || idle;
  $("status").classList.toggle("wrong", wrong);
  $("took").textContent = view.took();
}

/** Say an error in the visitor's language if its code is known, else in the server's words. */
function tellError(error, sentence = "") {
  const stopped = error.code === "cancelled", said = sentence && ` (${sentence})`;
  const why = () => (error.answer ? told(error.answer)[1] : t(error.code, view.limits)) || [error.text, error.do].filter(Boolean).join(" ");
  say(() => (stopped ? t("stopped") : why() || t("internal")) + said, !stopped);
}

function showBranching() {
  if (view.held) return;
  hide("branching", !(view.turn && view.turn < view.turns));
  $("branching").firstElementChild.textContent = t("branching", { n: view.turn });
}

function showButtons() {
  if (view.held) return;
  const said = Boolean($("text").value.trim() || words.sentence()), ready = Boolean(connection?.up && game?.session && !view.drawing);
  $("draw").textContent = t(said ? "draw" : "deal");
  able("draw", (ready || (run.active && connection.up)) && (said || words.groups?.length));
  hide("photo", !view.pictures);
  able("photo", ready);
  hide("cancel", run.active || !(view.drawing && game.pending));
  able("fresh", (ready || run.active) && film.strips.some((one) => one.turns.length));
  able("rewind", ready);
  hide("mp4", !view.whole || kiosk);
  able("mp4", ready && !run.active);
  hide("reel", kiosk || !film.current?.turns.length || !Recorder.type);
  able("reel", ready && !run.active);
  hide("link", kiosk || !film.story || !Number.isSafeInteger(game.seed));
  hide("live", kiosk || !words.groups?.some(([name]) => name === "motion"));
  able("live", run.active || ready);
  $("live").setAttribute("aria-pressed", String(run.active));
  offers.show(offered(), ready);
}

/** The sentence that somebody is about to ask for is drawn meanwhile, by a server that plays ahead. */
function wish(text) {
  clearTimeout(view.wishes);
  view.wishes = setTimeout(() => text && view.ahead && connection.up && game.session && game.wish([text]), WISH_MS);
}

/** A button that does nothing now keeps the keyboard's focus, which `disabled` would take from it. */
function able(id, yes) {
  $(id).setAttribute("aria-disabled", String(!yes));
}

function hide(id, yes) {
  if (yes && $(id).contains(document.activeElement)) $("draw").focus();
  $(id).hidden = yes;
}

/** The sentences that are ready, if what is played next goes on from the turn on the table. */
function offered() {
  const { turn, fields } = view.offers.get(game.session) ?? {};
  return turn === view.turns + 1 && view.turn === view.turns ? fields.instructions : [];
}

function translate() {
  document.documentElement.lang = $("language").value;
  document.querySelectorAll("[data-t]").forEach((one) => (one.textContent = t(one.dataset.t)));
  document.querySelectorAll("[data-tip]").forEach((one) => (one.title = t(one.dataset.tip)));
  document.querySelectorAll("[data-label]").forEach((one) => one.setAttribute("aria-label", t(one.dataset.label)));
  document.querySelectorAll("[data-holder]").forEach((one) => (one.placeholder = t(one.dataset.holder)));
  words.show();
  film.show();
  values.translate();
  showBranching();
  showButtons();
  if (view.scene()) showScene();
  tell(view.answer);
  say(view.status);
}

/** Play a sentence after the turn on the table. If that is not the last one, the game branches there. */
async function play(text) {
  if (view.drawing) return;
  const after = view.turn && view.turn < view.turns ? view.turn : null, spare = after === null ? undefined : film.spare;
  view.drawing = true;
  run.asks();
  if (offered().includes(text) && !run.active) awaitPicture();
  else if (!run.active) say(() => t("thinking"));
  showButtons();
  try {
    if (spare) await game.close(spare.session, spare.token);
    if (spare) film.drop(spare.session);
    await game.play(text, after);
  } catch (error) {
    release();
    view.drawing = false;
    refused(error, text);
  }
  showBranching();
  showButtons();
}

/** Ask before a film ends for good. A kiosk's visitor is not asked, as nobody may be there to answer. */
function sure(question) {
  if (kiosk) return true;
  $("sure").querySelector("p").textContent = question;
  $("sure").returnValue = "";
  $("sure").showModal();
  return new Promise((then) => ($("sure").onclose = () => then($("sure").returnValue === "yes")));
}

/** A link that tells a story was opened: it is played when its visitor says so. */
async function offerStory() {
  const { bundle, plan, seed, turns } = view.story, same = bundle === view.bundle.fingerprint && plan === view.bundle.plan;
  view.story = null;
  const said = [t("story", { n: turns.length }), !same && t("other"), film.strips.some((one) => one.turns.length) && t("end")];
  if (!(await sure(said.filter(Boolean).join(" ")))) return;
  run.active = true; // no clip of an empty table before it
  await game.fresh(film.strips, seed);
  run.start(turns.map((text) => ({ text })), { joins: view.turn > 0 });
}

function copyLink() {
  const { fingerprint, plan } = view.bundle, address = addressOf({ bundle: fingerprint, plan, seed: game.seed, turns: film.story });
  const copied = navigator.clipboard?.writeText(address) ?? Promise.reject();
  copied.then(() => say(() => t("linked")), () => prompt(t("link"), address)); // without TLS a page has no clipboard
}

/** Save the whole film: it plays once, with each turn's sentence below its clip. */
function saveFilm() {
  let recorder;
  say(() => t("filming"));
  run.start(film.current.turns.map((one) => one.turn), {
    begins: () => (recorder = new Recorder($("picture"), () => view.caption)),
    async ends() {
      if (!recorder) return;
      const blob = await recorder.finish();
      download(blob, `animegamer-film.${blob.type.split("/")[1]}`);
      say(() => t("saved"));
    },
  });
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const mayEnd = () => !film.strips.some((one) => one.turns.length) || sure(t("end"));

/** Save the turn on the table as an mp4 file, which the server renders again. */
async function save() {
  view.offers.clear(); // they were of pictures in another form
  view.drawing = true;
  showButtons();
  try {
    const turn = view.turn, share = (done) => (progress(done), say(() => t("saving", { n: Math.round(100 * done) })));
    share(0);
    download(await game.film(turn, share), `animegamer-turn-${turn}.mp4`);
    say(() => t("saved"));
  } catch (error) {
    tellError(error);
  }
  progress(0);
  view.drawing = false;
  showButtons();
}

$("sheet").onsubmit = (event) => {
  event.preventDefault();
  if ((view.drawing && !run.active) || $("draw").getAttribute("aria-disabled") === "true") return;
  const typed = $("text").value.trim();
  if (words.sentence() && !view.turns) words.fill(["who", "motion"]); // a film begins with somebody who does something
  const said = (typed !== view.composed && typed) || words.sentence(), text = said || offered()[0] || words.deal(!view.turns);
  const asked = { text, chosen: words.chosen, asked: true, quiet: !said };
  if (run.active) {
    run.next.push(asked);
    say(() => t("next"));
  } else {
    view.asked = asked;
    play(text); // first: what follows takes time
  }
  $("text").value = view.composed = "";
  words.clear();
};
addEventListener("click", (event) => { // see `able`
  if (!event.target.closest?.("[aria-disabled=true]")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);
$("text").oninput = () => {
  if ($("text").value !== view.composed) words.release();
  wish($("text").value.trim());
  showButtons();
};
listen(startFrom, () => Boolean(view.pictures));
$("cancel").onclick = () => game.cancel();
$("fresh").onclick = async () => {
  if (!(await mayEnd())) return;
  if (run.active) run.stop();
  await game.fresh(film.strips);
  film.keep(); // tells this browser's other windows
};
$("again").onclick = () => screen.again();
$("mp4").onclick = save;
$("reel").onclick = saveFilm;
$("link").onclick = copyLink;
$("live").onclick = () => {
  view.base = view.turns;
  run.active ? run.stop() : run.start([], { joins: view.turn > 0, lives: true });
  say(() => (run.active ? t("lives") : ""));
};
$("rewind").onclick = () => game.rewind(view.turn).catch(tellError);
$("language").onchange = () => {
  keep(LANGUAGE, setLanguage($("language").value));
  translate();
};
addEventListener("storage", (event) => {
  if (event.key !== film.key || view.drawing || !game.session) return;
  film.read(); // another window drew a turn, branched, or began a new game
  say(() => "");
  film.current ? game.list().then((listed) => listed && (view.turns = Math.max(view.turns, ...listed.fields.turns.map((one) => one.turn))) && showBranching()) : game.open();
});
view.story = storyOf(location.hash);
if (location.hash) history.replaceState(null, "", location.href.split("#")[0]);
if (kiosk) addEventListener("contextmenu", (event) => event.preventDefault());
document.body.classList.toggle("kiosk", kiosk);
const wanted = [kept(LANGUAGE), ...navigator.languages.map((one) => one.slice(0, 2))];
$("language").value = setLanguage(wanted.find((one) => LANGUAGES.includes(one)));
say(() => t("off"));
translate();
attract();
