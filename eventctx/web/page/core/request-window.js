/**
 * The window of requests that the river shows: chosen by dragging, by its two handles, by keys.
 * Requests by their index; no DOM.
 */

/** More columns than this become a comb. */
export const WIDEST_WINDOW = 400;

/** @typedef {readonly [number, number]} RequestWindow first and last request, both in it */

/**
 * The nearest window that there is.
 * @param {RequestWindow} wanted
 * @param {number} count how many requests there are
 * @returns {RequestWindow}
 */
export function clampWindow([first, last], count) {
  if (count <= 0) return [0, -1];
  const size = Math.min(count, WIDEST_WINDOW, Math.max(1, last - first + 1));
  const start = Math.min(Math.max(0, first), count - size);
  return [start, start + size - 1];
}

/**
 * The same size, `by` requests further.
 * @param {RequestWindow} from
 * @param {number} by
 * @param {number} count
 * @returns {RequestWindow}
 */
export function moveWindow([first, last], by, count) {
  return clampWindow([first + by, last + by], count);
}

/**
 * One edge goes to a request. Past the other edge it stops, beyond the widest it takes it along.
 * @param {RequestWindow} from
 * @param {'first' | 'last'} edge
 * @param {number} to
 * @param {number} count
 * @returns {RequestWindow}
 */
export function moveEdge([first, last], edge, to, count) {
  const request = Math.min(count - 1, Math.max(0, to));
  if (edge === 'first') {
    const start = Math.min(request, last);
    return clampWindow([start, Math.min(last, start + WIDEST_WINDOW - 1)], count);
  }
  const end = Math.max(request, first);
  return clampWindow([Math.max(first, end - WIDEST_WINDOW + 1), end], count);
}

/**
 * Between two requests, in any order: what a drag over free ground chooses.
 * @param {number} from where the drag began; this end stays
 * @param {number} to
 * @param {number} count
 * @returns {RequestWindow}
 */
export function windowBetween(from, to, count) {
  const far = WIDEST_WINDOW - 1;
  if (to >= from) return clampWindow([from, Math.min(to, from + far)], count);
  return clampWindow([Math.max(to, from - far), from], count);
}

/**
 * The window with a request in it: the same one where it already is. Else it moves by so much that
 * the request stands a quarter inside, so that the next steps need no move.
 * @param {RequestWindow} from
 * @param {number} request
 * @param {number} count
 * @returns {RequestWindow}
 */
export function windowWith([first, last], request, count) {
  if (request < 0 || (request >= first && request <= last && last < count)) {
    return clampWindow([first, last], count);
  }
  const size = Math.max(1, last - first + 1);
  const margin = Math.floor(size / 4);
  const start = request < first ? request - margin : request - size + 1 + margin;
  return clampWindow([start, start + size - 1], count);
}

/**
 * The window after requests came: one that showed all of them still does, as far as it can.
 * @param {RequestWindow} from
 * @param {number} before how many requests there were
 * @param {number} count
 * @returns {RequestWindow}
 */
export function windowGrown([first, last], before, count) {
  // A full one would lose its first requests: who follows the end moves it anyway.
  if (first > 0 || last < before - 1 || before >= WIDEST_WINDOW) return [first, last];
  return clampWindow([count - WIDEST_WINDOW, count - 1], count);
}

/** @typedef {'first' | 'last' | 'move' | 'new'} BrushPart */

/**
 * What of the brush lies under a pointer.
 * @param {{left: number, right: number}} edges of the window, in pixels
 * @param {number} x
 * @param {number} reach how near to an edge is on it
 * @returns {BrushPart}
 */
export function brushPartAt({ left, right }, x, reach) {
  const [toFirst, toLast] = [Math.abs(x - left), Math.abs(x - right)];
  // In a narrow window the handles would cover all of it: what lies outside of it is theirs.
  const inner = right - left < reach * 3 ? 0 : reach;
  if (toFirst <= toLast && x >= left - reach && x < left + Math.max(inner, 1)) return 'first';
  if (x <= right + reach && x > right - Math.max(inner, 1)) return 'last';
  return x > left && x < right ? 'move' : 'new';
}

/**
 * What a key does to a part of the brush that has the focus.
 * @param {RequestWindow} from
 * @param {'first' | 'last' | 'move'} part
 * @param {string} key
 * @param {number} count
 * @returns {RequestWindow | null} null: the key is not for the brush
 */
export function windowByKey(from, part, key, count) {
  const page = Math.max(1, Math.floor((from[1] - from[0] + 1) / 2));
  const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: page, PageDown: -page }[key];
  if (part === 'move') {
    if (key === 'Home') return moveWindow(from, -count, count);
    if (key === 'End') return moveWindow(from, count, count);
    return by === undefined ? null : moveWindow(from, by, count);
  }
  if (key === 'Home') return moveEdge(from, part, 0, count);
  if (key === 'End') return moveEdge(from, part, count - 1, count);
  return by === undefined ? null : moveEdge(from, part, from[part === 'first' ? 0 : 1] + by, count);
}
