/**
 * The search of a page without a server: words and "phrases", in any case, with or without accents.
 */

/** Fields that hold no text for a reader. */
const NOT_TEXT = new Set(['type', 'role', 'id', 'tool_use_id', 'tool_call_id', 'signature', 'data']);

const SNIPPET_BEFORE = 80;
const SNIPPET_CHARACTERS = 240;

/** @param {string} query @returns {string[]} the words and phrases, folded */
export function wordsOfQuery(query) {
  const parts = query.match(/"[^"]*"?|[^\s"]+/g) ?? [];
  return [...new Set(parts.map((one) => folded(one.replace(/["*]/g, '').trim())))].filter(Boolean);
}

/**
 * @param {any} message
 * @param {string[]} words
 * @returns {{score: number, snippet: string, role: string} | null} `score`: words that are in it
 */
export function foundIn(message, words) {
  const text = textsIn(message, []).join('\n');
  const inside = folded(text);
  const places = words.map((word) => inside.indexOf(word)).filter((place) => place >= 0);
  if (places.length === 0 && words.length > 0) return null;
  const start = Math.max(0, Math.min(places[0] ?? 0, ...places) - SNIPPET_BEFORE);
  const piece = text.slice(start, start + SNIPPET_CHARACTERS).replace(/\s+/g, ' ').trim();
  const cut = start + SNIPPET_CHARACTERS < text.length;
  const snippet = `${start > 0 ? '…' : ''}${piece}${cut ? '…' : ''}`;
  return { score: places.length, snippet, role: String(message.role ?? '') };
}

/** @param {any} value @param {string[]} texts @returns {string[]} all texts in it, in order */
function textsIn(value, texts) {
  if (typeof value === 'string') texts.push(value);
  else if (Array.isArray(value)) value.forEach((one) => textsIn(one, texts));
  else if (value !== null && typeof value === 'object') {
    for (const [name, one] of Object.entries(value)) if (!NOT_TEXT.has(name)) textsIn(one, texts);
  }
  return texts;
}

/** Lower case without accents, as long as the text: places in the one are places in the other. @param {string} text */
function folded(text) {
  const lower = text.toLowerCase();
  const low = lower.length === text.length ? lower : text;
  return /^[\x00-\x7f]*$/.test(low) ? low : low.replace(/[\u00c0-\u1eff]/g, baseOf);
}

/** @param {string} character */
function baseOf(character) {
  return character.normalize('NFD').charAt(0);
}
