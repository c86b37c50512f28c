// The page for staff: what the watch sees, and buttons.

const $ = (id) => document.getElementById(id);
const GAME = "animegamer-server.service";
const PARTS = { [GAME]: "the game", "animegamer-watch.service": "the watch", "animegamer-browser.service": "the picture" };

const SERVER = {
  starting: "The clip plays; the game is starting.", unreachable: "The clip plays; the game is not there yet.",
  draining: "The game is stopping.", degraded: "The clip plays; the game cannot load its model.",
};
const LONG_S = 600, LEAST_GIB = 1;

/** One sentence, and whether somebody has to do something. */
function verdict(state) {
  if (!state.hours) return ["The screen is off: it is out of hours.", false];
  if (!state.monitor) return ["No monitor is plugged in, or it is off.", true];
  if (state.picture !== "moves") return [`The picture is ${state.picture}. The watch restarts it; wait a minute.`, true];
  if (["inactive", "failed"].includes(state.units[GAME])) return ["The clip plays; the game is stopped. Press “Restart the game”.", true];
  if (state.server !== "ready") {
    const long = state.server === "degraded" || state.server_s > LONG_S;
    return [(SERVER[state.server] ?? `The game says: ${state.server}.`) + (long ? " Press “Restart the game”." : ""), long];
  }
  if (state.free_gib < LEAST_GIB) return ["All moves, but the disk is almost full: games may be lost.", true];
  return ["All is well: the picture moves, and visitors can play.", false];
}

/** Seconds in words that fit their size. */
function lasted(seconds) {
  const [of, unit] = seconds < 120 ? [1, "s"] : seconds < 7200 ? [60, "min"] : [3600, "h"];
  return `${Math.round(seconds / of)} ${unit}`;
}

async function show() {
  let state;
  try {
    state = await (await fetch("state.json", { cache: "no-store" })).json();
  } catch {
    $("said").textContent = "The watch does not answer. Wait a minute; else restart the machine.";
    $("said").className = "wrong";
    return;
  }
  const [text, wrong] = verdict(state);
  $("said").textContent = text;
  $("said").className = wrong ? "wrong" : "";
  const facts = Object.entries(state.units).map(([unit, active]) => [PARTS[unit] ?? unit, active]);
  facts.push(["visitors can play", `${state.server === "ready" ? "yes" : `no: ${state.server}`}, for ${lasted(state.server_s)}`]);
  facts.push(["free on the disk", `${state.free_gib} GiB`]);
  facts.push(["temperature", state.temperature_c === null ? "not known" : `${Math.round(state.temperature_c)} °C`]);
  facts.push(["last restart by the watch", state.action ? `${state.action}, ${state.acted_at}` : "none"]);
  facts.push(["visitors' pages emptied", String(state.resets)], ["build", state.build], ["time", state.time]);
  $("facts").replaceChildren(...facts.map(([name, value]) => {
    const row = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
    head.textContent = name;
    cell.textContent = value;
    row.append(head, cell);
    return row;
  }));
  $("errors").textContent = state.errors.join("\n") || "none";
}

for (const button of document.querySelectorAll("[data-do]")) {
  button.onclick = async () => {
    if (button.dataset.ask && !confirm(button.dataset.ask)) return;
    button.disabled = true;
    const done = await fetch(`do/${button.dataset.do}`, { method: "POST", headers: { "X-Animegamer": "1" } })
      .then(async (answer) => answer.ok && (await answer.json()).done).catch(() => false);
    button.disabled = false;
    $("did").textContent = done ? `${button.textContent}: done.` : `${button.textContent}: that did not work. Try the next one.`;
    show();
  };
}
show();
setInterval(show, 5000);
