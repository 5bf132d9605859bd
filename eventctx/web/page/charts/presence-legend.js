/** The key to the presence map. */

import { h } from '../element.js';
import { standingWord } from '../parts/standing.js';
import { legendItem } from './legend.js';
import { palette } from './palette.js';
import { paintStanding } from './presence-paint.js';

/** Those that say what they are by themselves; the line above the map names the others. */
const SHOWN = ['whole', 'shortened', 'summarised', 'dropped', 'set', 'omitted'];

/** @returns {{list: HTMLElement, items: import('./legend.js').LegendItem[]}} */
export function presenceLegend() {
  const items = SHOWN.map((what) =>
    legendItem(standingWord(what), (context, width, height) => {
      const path = new Path2D();
      const top = what === 'shortened' ? height / 2 : 0;
      path.rect(0, top, width, height - top);
      paintStanding(context, path, what, palette.peek(), height);
    }),
  );
  const list = h(
    'ul',
    { class: 'chart-legend quiet', 'aria-label': 'What became of a message' },
    items.map(({ item }) => item),
  );
  return { list, items };
}
