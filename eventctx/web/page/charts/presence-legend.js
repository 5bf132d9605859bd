/** The key to the presence map. */

import { h } from '../core/element.js';
import { standingWord } from '../parts/standing.js';
import { legendItem } from './legend.js';
import { palette } from './palette.js';
import { STANDING_STYLES } from './patterns.js';
import { paintStanding } from './presence-paint.js';

/**
 * What is in the window has its key there; the others would only take room.
 * @returns {{list: HTMLElement, items: import('./legend.js').LegendItem[],
 *   show: (runs: readonly {what: string}[]) => void}}
 */
export function presenceLegend() {
  const names = Object.keys(STANDING_STYLES);
  const items = names.map((what) =>
    legendItem(standingWord(what), (context, width, height) => {
      const path = new Path2D();
      const top = what === 'shortened' ? height / 2 : 0;
      path.rect(0, top, width, height - top);
      const colours = palette.peek();
      paintStanding(context, path, what, { ...colours, text: colours.axis }, height);
    }),
  );
  const list = h(
    'ul',
    { class: 'chart-legend quiet', 'aria-label': 'What became of a message' },
    items.map(({ item }) => item),
  );
  return {
    list,
    items,
    show(runs) {
      const shown = new Set(['whole', ...runs.map(({ what }) => what)]);
      names.forEach((what, at) => {
        const item = items[at]?.item;
        if (item) item.hidden = !shown.has(what);
      });
    },
  };
}
