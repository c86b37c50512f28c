// What this browser keeps of a game. Its store may be blocked, full or damaged: the page then plays on and keeps nothing.

const memory = new Map(); // what the store would not take

/** A kept text, or null. tab: of this window alone. */
export function kept(key, tab = false) {
  if (memory.has(key)) return memory.get(key);
  try {
    return store(tab).getItem(key);
  } catch {
    return null;
  }
}

/** Keep a text; null forgets it. Returns whether it outlives the page. */
export function keep(key, text, tab = false) {
  try {
    text === null ? store(tab).removeItem(key) : store(tab).setItem(key, text);
    memory.delete(key);
    return true;
  } catch {
    memory.set(key, text);
    return false;
  }
}

/** A kept value that `fits`, or null: another program, or an older page, may have written anything. */
export function keptValue(key, fits) {
  try {
    const value = JSON.parse(kept(key));
    return fits(value) ? value : null;
  } catch {
    return null;
  }
}

function store(tab) {
  return tab ? sessionStorage : localStorage; // blocked: even to name it is an error
}
