/** A person's messages in a presence map whose rows are too low for a colour each. */

import { groupOf, SCREEN_GROUPS } from '../timeline/groups.js';
import { rowTop, STRIP_WIDTH, visibleMessages } from './presence-shape.js';
import { sharp } from './surface.js';

/** @typedef {import('./presence-paint.js').PresencePicture} PresencePicture */

const PERSONS_GROUP = SCREEN_GROUPS.indexOf('person');

/**
 * In rows too low for a colour each, a person's messages still are lines of their own, through the
 * kinds and over the cells: they are what people look for. Where there are too many, they would
 * cover the rest.
 * @param {CanvasRenderingContext2D} context
 * @param {PresencePicture} picture
 */
export function paintPersons(context, { timeline, shape, colours }) {
  const [first, last] = visibleMessages(shape);
  const rows = new Set();
  for (let message = first; message <= last; message += 1) {
    if (groupOf(timeline.messages.kind[message] ?? 0) === PERSONS_GROUP) rows.add(Math.floor(message / shape.scale.perRow));
  }
  if (rows.size * 8 > shape.bottom - shape.top) return;
  const colour = colours.forced ? colours.text : (colours.groups[PERSONS_GROUP] ?? colours.text);
  context.fillStyle = colour;
  for (const row of rows) {
    const y = sharp(rowTop(shape, row));
    const height = Math.max(2, shape.scale.pixels);
    context.fillRect(shape.strip - 3, y, STRIP_WIDTH + 6, height);
    context.globalCompositeOperation = 'source-atop';
    context.globalAlpha = 0.7;
    context.fillRect(shape.columns.left, y, shape.right - shape.columns.left, Math.min(height, 2));
    context.globalAlpha = 1;
    context.globalCompositeOperation = 'source-over';
  }
}
