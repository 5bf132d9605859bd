/**
 * The rows of the list of sessions: newest first, forks and subagents under where they began.
 */

/** @typedef {import('../source/source.js').SessionRow} SessionRow */
/** @typedef {{row: SessionRow, depth: number, matches: boolean}} ListedSession */
/** @typedef {{text: string, compactions: boolean, lost: boolean}} SessionFilter */

/**
 * The sessions that a filter lets through, and above each, to say where it began, its origins.
 * @param {readonly SessionRow[]} rows
 * @param {SessionFilter} filter
 * @param {(session: string) => number | null} lostIn words out of view, null while not known
 * @returns {ListedSession[]}
 */
export function listedSessions(rows, filter, lostIn) {
  const known = new Set(rows.map((row) => row.session));
  /** @type {Map<string | null, SessionRow[]>} */
  const under = new Map();
  for (const row of rows) {
    const origin = originOf(row);
    const key = origin !== null && known.has(origin) ? origin : null;
    const siblings = under.get(key);
    if (siblings === undefined) under.set(key, [row]);
    else siblings.push(row);
  }
  const matches = matcher(filter, lostIn);
  /** @type {ListedSession[]} */
  const listed = [];
  const placed = new Set();
  /**
   * @param {SessionRow} row
   * @param {number} depth
   * @returns {ListedSession[]}
   */
  function branch(row, depth) {
    if (placed.has(row.session)) return []; // two that name each other as origin
    placed.add(row.session);
    const below = (under.get(row.session) ?? [])
      .sort((a, b) => timeOf(a.started) - timeOf(b.started))
      .flatMap((child) => branch(child, depth + 1));
    const self = { row, depth, matches: matches(row) };
    return self.matches || below.length > 0 ? [self, ...below] : [];
  }
  const roots = under.get(null) ?? [];
  for (const row of roots.sort((a, b) => timeOf(b.last) - timeOf(a.last))) {
    listed.push(...branch(row, 0));
  }
  // Sessions that are one another's origin hang on no root, and must not be missing.
  for (const row of rows) if (!placed.has(row.session)) listed.push(...branch(row, 0));
  return listed;
}

/**
 * The session that this one began in, as a fork or as a subagent.
 * @param {SessionRow} row
 */
export function originOf(row) {
  return row.parent ?? row.belongs_to;
}

/** @param {string | null} iso @returns {number} ms since 1970, 0 without a time */
export function timeOf(iso) {
  return iso === null ? 0 : Date.parse(iso);
}

/** How a session's requests are known, in a word. @param {SessionRow} row */
export function knownAs({ requests, observed, reconstructed }) {
  if (requests === 0) return '';
  if (reconstructed === requests) return 'reconstructed';
  if (observed === requests) return 'observed';
  return reconstructed + observed === 0 ? 'prepared' : 'mixed';
}

/**
 * @param {SessionFilter} filter
 * @param {(session: string) => number | null} lostIn
 * @returns {(row: SessionRow) => boolean}
 */
function matcher({ text, compactions, lost }, lostIn) {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return (row) => {
    if (compactions && row.compactions === 0) return false;
    if (lost && (lostIn(row.session) ?? 0) === 0) return false;
    const searched = `${row.session} ${row.format ?? 'eventctx'} ${knownAs(row)}`.toLowerCase();
    return words.every((word) => searched.includes(word));
  };
}
