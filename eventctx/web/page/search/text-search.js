// A search over texts that are here: words, "quoted phrases" and prefix*, as the engine's search
// understands them. Every word must be in the message.

/** @typedef {{needles: string[], pattern: RegExp}} TextQuery */

const AROUND_A_HIT = 80;

/**
 * @param {string} query
 * @returns {TextQuery | null} null if there is nothing to look for
 */
export function parsedQuery(query) {
  const needles = [];
  for (const [, phrase, word] of query.matchAll(/"([^"]+)"?|(\S+)/g)) {
    const needle = (phrase ?? word.replace(/\*$/, '')).trim().toLowerCase();
    if (needle) needles.push(needle);
  }
  if (!needles.length) return null;
  const escaped = needles.map((needle) => needle.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  // The longest first: of two that begin alike the whole one is marked.
  escaped.sort((a, b) => b.length - a.length);
  return { needles, pattern: new RegExp(escaped.join('|'), 'giu') };
}

/**
 * The place around the first match, if every needle is in the texts.
 *
 * @param {TextQuery} query
 * @param {string[]} texts
 * @returns {string | null}
 */
export function snippetOf(query, texts) {
  const all = texts.join('\n').toLowerCase();
  if (!query.needles.every((needle) => all.includes(needle))) return null;
  for (const text of texts) {
    const at = text.search(new RegExp(query.pattern.source, 'iu'));
    if (at < 0) continue;
    const from = Math.max(0, at - AROUND_A_HIT);
    const to = Math.min(text.length, at + 2 * AROUND_A_HIT);
    const cut = text.slice(from, to).replace(/\s+/g, ' ').trim();
    return `${from > 0 ? '…' : ''}${cut}${to < text.length ? '…' : ''}`;
  }
  return texts.join(' ').slice(0, 2 * AROUND_A_HIT);
}

/**
 * A text in pieces, of which those that match are marked.
 *
 * @param {TextQuery} query
 * @param {string} text
 * @returns {{text: string, hit: boolean}[]}
 */
export function hitPieces(query, text) {
  /** @type {{text: string, hit: boolean}[]} */
  const pieces = [];
  let at = 0;
  for (const match of text.matchAll(query.pattern)) {
    if (match.index > at) pieces.push({ text: text.slice(at, match.index), hit: false });
    pieces.push({ text: match[0], hit: true });
    at = match.index + match[0].length;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), hit: false });
  return pieces;
}
