/** What the browser keeps for this page over a reload: sizes and choices, never a text of a session. */

const KEPT_AS = 'eventctx.page';

/** @template T @param {string} name @param {T} initial @returns {T} what was kept, else `initial` */
export function keptChoice(name, initial) {
  const found = keptChoices()[name];
  return typeof found === typeof initial && Array.isArray(found) === Array.isArray(initial) ? found : initial;
}

/** @param {string} name @param {unknown} value */
export function keepChoice(name, value) {
  try {
    localStorage.setItem(KEPT_AS, JSON.stringify({ ...keptChoices(), [name]: value }));
  } catch {
    // Then it is as usual next time.
  }
}

/** @returns {Record<string, any>} */
function keptChoices() {
  try {
    return JSON.parse(localStorage.getItem(KEPT_AS) ?? '{}') ?? {};
  } catch {
    return {}; // the browser keeps nothing for this page
  }
}
