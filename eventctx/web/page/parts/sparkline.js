/** A session's sizes as a small area, so that its cliffs can be seen in a list. */

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 120;
const HEIGHT = 24;

/**
 * @param {readonly number[]} totals tokens of requests, in order
 * @returns {SVGElement}
 */
export function sparkline(totals) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', 'sparkline');
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  if (totals.length === 0) return svg;
  const line = pointsOf(totals);
  svg.append(
    pathOf('spark-area', `M0 ${HEIGHT} L${line} L${WIDTH} ${HEIGHT} Z`),
    pathOf('spark-line', `M${line}`),
  );
  return svg;
}

/** @param {readonly number[]} totals */
function pointsOf(totals) {
  const highest = Math.max(1, ...totals);
  // One request is a flat line, not a point that nobody sees.
  const shown = totals.length === 1 ? [totals[0] ?? 0, totals[0] ?? 0] : totals;
  const step = WIDTH / (shown.length - 1);
  return shown
    .map((total, at) => `${round(at * step)} ${round(HEIGHT - 1 - (total / highest) * (HEIGHT - 2))}`)
    .join(' L');
}

/**
 * @param {string} name
 * @param {string} d
 */
function pathOf(name, d) {
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('class', name);
  path.setAttribute('d', d);
  path.setAttribute('vector-effect', 'non-scaling-stroke');
  return path;
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}
