/** Paints the presence map: cells by what became of each message, the kinds of message at the left. */

import { groupOf, SCREEN_GROUPS } from '../timeline/groups.js';
import { cliffMarks } from './river-shape.js';
import { GROUP_PATTERNS, STANDING_STYLES, fillPatterned } from './patterns.js';
import {
  boxOfRun, messagesOfRow, rowLabels, rowTop, STRIP_WIDTH, visibleMessages, visibleRows, BIN_STATES, binStates, boxesOfStates, summaryBrackets,
} from './presence-shape.js';
import { LABEL_RISE, paintCliffLabels, paintCliffMark, requestLabels } from './river-paint.js';
import { columnLeft, labelsThatFit } from './scales.js';
import { sharp } from './surface.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */
/** @typedef {import('./palette.js').Palette} Palette */
/** @typedef {import('./presence-shape.js').PresenceShape} PresenceShape */
/** @typedef {import('../timeline/presence.js').PresenceRun} PresenceRun */

/** @typedef {CanvasRenderingContext2D} Context */

/**
 * @typedef {{timeline: Timeline, runs: readonly PresenceRun[], shape: PresenceShape, colours: Palette,
 *   cliffs: readonly import('./river-shape.js').Cliff[]}} PresencePicture
 */

/** Rows lower than this have no halves and no gaps that could be seen. */
const LOWEST_DIVIDED_ROW = 4;
/** In lower rows the colours of neighbours run into others: only a person's rows have theirs. */
const LOWEST_TINTED_ROW = 3;
const LOWEST_SEPARATE_ROW = 6;

const PERSON = SCREEN_GROUPS.indexOf('person');

/** How strong rows of many messages are filled, by what `BIN_STATES` says. @type {Readonly<Record<string, number>>} */
const BIN_STRENGTHS = { all: 0.85, most: 0.62, half: 0.42, few: 0.24 };

/** @param {Context} context @param {PresencePicture} picture */
export function paintPresence(context, picture) {
  const { shape } = picture;
  context.save();
  context.beginPath();
  context.rect(0, shape.top, shape.right + 8, shape.bottom - shape.top);
  context.clip();
  if (shape.scale.perRow === 1) {
    paintRuns(context, picture);
  } else {
    paintBins(context, picture);
  }
  tintRows(context, picture);
  separateRows(context, picture);
  if (shape.scale.pixels >= LOWEST_TINTED_ROW) paintKinds(context, picture);
  else {
    paintKindShares(context, picture);
    paintPersons(context, picture);
  }
  paintCompactionLines(context, picture);
  paintBrackets(context, picture);
  context.restore();
  paintEdges(context, picture);
}

/**
 * The cells, all in one colour: what a row is, is tinted over them.
 * @param {Context} context
 * @param {PresencePicture} picture
 */
function paintRuns(context, { runs, shape, colours }) {
  /** @type {Map<string, Path2D>} */
  const paths = new Map();
  for (const run of runs) {
    const box = boxOfRun(shape, run);
    if (box === null) continue;
    let path = paths.get(run.what);
    if (path === undefined) paths.set(run.what, (path = new Path2D()));
    const x = sharp(box.x);
    const width = Math.max(0.75, sharp(box.x + box.width) - x);
    if (STANDING_STYLES[run.what]?.half && shape.scale.pixels >= LOWEST_DIVIDED_ROW) {
      for (let row = box.row; row < box.row + box.rows; row += 1) {
        const y = rowTop(shape, row);
        path.rect(x, y + shape.scale.pixels / 2, width, shape.scale.pixels / 2);
      }
    } else {
      const y = sharp(box.y);
      path.rect(x, y, width, Math.max(0.75, sharp(box.y + box.height) - y));
    }
  }
  for (const [what, path] of paths) paintStanding(context, path, what, colours, shape.scale.pixels);
}

/**
 * @param {Context} context
 * @param {Path2D} path
 * @param {string} what
 * @param {Palette} colours
 * @param {number} pixels of a row
 */
export function paintStanding(context, path, what, { text, ratio }, pixels) {
  const style = STANDING_STYLES[what];
  if (style === undefined) return;
  // Too low for a half: half as strong.
  const ground = style.half && pixels < LOWEST_DIVIDED_ROW ? 0.45 : style.ground;
  fillPatterned(context, path, { colour: text, pattern: style.pattern, ink: text, ground, strength: style.ink, ratio });
}

/** Gives rows the colour of who wrote their message, where a cell was painted. @param {Context} context @param {PresencePicture} picture */
function tintRows(context, { timeline, shape, colours }) {
  if (colours.forced) return;
  context.globalCompositeOperation = 'source-atop';
  const all = shape.scale.pixels >= LOWEST_TINTED_ROW;
  // Black and white would be the loudest on the page, and say the least.
  context.fillStyle = colours.axis;
  context.fillRect(0, shape.top, shape.right + 8, shape.bottom - shape.top);
  if (shape.scale.perRow === 1) {
    eachKindRun(timeline, shape, (group, y, height) => {
      if (!all && group !== PERSON) return;
      context.fillStyle = colours.groups[group] ?? colours.text;
      context.fillRect(0, y, shape.right + 8, Math.max(1, height));
    });
  }
  context.globalCompositeOperation = 'source-over';
}

/**
 * Rows of the same group next to each other.
 * @param {Timeline} timeline
 * @param {PresenceShape} shape
 * @param {(group: number, y: number, height: number) => void} use
 */
function eachKindRun({ messages }, shape, use) {
  const [first, last] = visibleMessages(shape);
  for (let message = first; message <= last; ) {
    const group = groupOf(messages.kind[message] ?? 0);
    let end = message + 1;
    while (end <= last && groupOf(messages.kind[end] ?? 0) === group) end += 1;
    const y = sharp(rowTop(shape, message));
    use(group, y, sharp(rowTop(shape, end)) - y);
    message = end;
  }
}

/** @param {Context} context @param {PresencePicture} picture */
function paintKinds(context, { timeline, shape, colours }) {
  /** @type {Path2D[]} */
  const paths = GROUP_PATTERNS.map(() => new Path2D());
  eachKindRun(timeline, shape, (group, y, height) => paths[group]?.rect(shape.strip, y, STRIP_WIDTH, height));
  paths.forEach((path, group) => fillPatterned(context, path, kindStyle(colours, group)));
}

/** @param {Palette} colours @param {number} group */
function kindStyle({ groups, ground, text, forced, ratio }, group) {
  const pattern = GROUP_PATTERNS[group] ?? 'solid';
  const [ink, strength] = forced ? [text, 1] : [ground, 0.34];
  return { colour: groups[group] ?? text, pattern, ink, ground: forced && pattern !== 'solid' ? 0 : 1, strength, ratio };
}

/** A thin gap between rows that are high enough for one. @param {Context} context @param {PresencePicture} picture */
function separateRows(context, { shape }) {
  if (shape.scale.pixels < LOWEST_SEPARATE_ROW) return;
  const [first, last] = visibleRows(shape);
  for (let row = first; row <= last; row += 1) {
    context.clearRect(shape.strip, sharp(rowTop(shape, row + 1)) - 1, shape.right - shape.strip, 1);
  }
}

/** @param {Context} context @param {PresencePicture} picture */
function paintBins(context, { runs, shape, colours }) {
  const [firstRow, lastRow] = visibleRows(shape);
  const { first, last } = shape.columns;
  const grid = { perRow: shape.scale.perRow, firstRow, rows: lastRow - firstRow + 1, first, last };
  const boxes = boxesOfStates(binStates(runs, grid), last - first + 1);
  const paths = BIN_STATES.map(() => new Path2D());
  for (const { state, column, columns, row, rows } of boxes) {
    const x = sharp(columnLeft(shape.columns, first + column));
    const y = sharp(rowTop(shape, firstRow + row));
    const width = sharp(columnLeft(shape.columns, first + column + columns)) - x;
    paths[state]?.rect(x, y, Math.max(0.75, width), sharp(rowTop(shape, firstRow + row + rows)) - y);
  }
  paths.forEach((path, state) => paintBinState(context, path, BIN_STATES[state] ?? 'none', colours));
}

/** @param {Context} context @param {Path2D} path @param {string} state @param {Palette} colours */
function paintBinState(context, path, state, colours) {
  const strength = BIN_STRENGTHS[state];
  if (strength === undefined) {
    paintStanding(context, path, state, colours, 1);
    return;
  }
  context.fillStyle = colours.text;
  context.globalAlpha = strength;
  context.fill(path);
  context.globalAlpha = 1;
}

/** Rows too low for a colour each: some of them together, and the share of each kind. @param {Context} context @param {PresencePicture} picture */
function paintKindShares(context, { timeline, shape, colours }) {
  const [first, last] = visibleRows(shape);
  const { kind } = timeline.messages;
  const paths = GROUP_PATTERNS.map(() => new Path2D());
  const together = Math.ceil(LOWEST_TINTED_ROW / shape.scale.pixels);
  for (let row = first - (first % together); row <= last; row += together) {
    const [from] = messagesOfRow(shape, row);
    const [, to] = messagesOfRow(shape, Math.min(shape.rows, row + together) - 1);
    const counts = GROUP_PATTERNS.map(() => 0);
    for (let message = from; message <= to; message += 1) {
      const group = groupOf(kind[message] ?? 0);
      counts[group] = (counts[group] ?? 0) + 1;
    }
    const y = sharp(rowTop(shape, row));
    const height = sharp(rowTop(shape, Math.min(shape.rows, row + together))) - y;
    let x = shape.strip;
    counts.forEach((count, group) => {
      const width = (STRIP_WIDTH * count) / (to - from + 1);
      paths[group]?.rect(x, y, width, height);
      x += width;
    });
  }
  paths.forEach((path, group) => fillPatterned(context, path, { ...kindStyle(colours, group), strength: 0 }));
}

/** @param {Context} context @param {PresencePicture} picture */
function paintCompactionLines(context, { shape, colours, cliffs }) {
  const { columns, top } = shape;
  const bottom = Math.min(shape.bottom, rowTop(shape, shape.rows));
  context.fillStyle = colours.axis;
  for (const { request, numbers } of cliffs) {
    if (numbers.length === 0 || request <= columns.first || request > columns.last) continue;
    context.globalAlpha = 0.55;
    context.fillRect(sharp(columnLeft(columns, request)) - 0.5, top, 1, bottom - top);
  }
  context.globalAlpha = 1;
}

/** @param {Context} context @param {PresencePicture} picture */
function paintBrackets(context, { runs, shape, colours, timeline }) {
  const { columns, scale } = shape;
  if (columns.step * 6 < 5) return;
  context.strokeStyle = colours.groups[4] ?? colours.text;
  context.lineWidth = 2;
  for (const { request, number, until } of summaryBrackets(runs, columns.first)) {
    const x = sharp(columnLeft(columns, request)) + 2;
    const top = rowTop(shape, Math.floor(number / scale.perRow)) + 1;
    const bottom = rowTop(shape, Math.floor(until / scale.perRow) + 1) - 1;
    context.beginPath();
    context.moveTo(x + 5, top);
    context.lineTo(x, top);
    context.lineTo(x, bottom);
    context.lineTo(x + 5, bottom);
    context.stroke();
    paintSummaryName(context, shape, colours, { x, top, bottom, request, timeline });
  }
}

/**
 * Next to its bracket, in the middle of what is seen of it.
 * @param {Context} context
 * @param {PresenceShape} shape
 * @param {Palette} colours
 * @param {{x: number, top: number, bottom: number, request: number, timeline: Timeline}} bracket
 */
function paintSummaryName(context, shape, { ground, text }, { x, top, bottom, request, timeline }) {
  const [from, to] = [Math.max(top, shape.top), Math.min(bottom, shape.bottom)];
  if (to - from < 22 || timeline.requests.plan.length === 0) return;
  const number = timeline.compactions[timeline.requests.plan[request] ?? -1]?.number ?? 0;
  const label = number > 0 ? `summary ${number}` : 'summary';
  const width = context.measureText(label).width;
  if (x + 10 + width > shape.right || width > shape.columns.width / 3) return;
  const y = (from + to) / 2;
  context.fillStyle = ground;
  context.globalAlpha = 0.9;
  context.fillRect(x + 6, y - 9, width + 8, 18);
  context.globalAlpha = 1;
  context.fillStyle = text;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.fillText(label, x + 10, y);
}

/** Numbers of messages at the left, compactions above, names of requests below. @param {Context} context @param {PresencePicture} picture */
function paintEdges(context, { shape, colours, timeline, cliffs }) {
  const { columns, top, bottom, strip } = shape;
  context.fillStyle = colours.axis;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const { message, y } of rowLabels(shape)) context.fillText(`#${message}`, strip - 5, y);
  const shown = cliffs.filter(({ request }) => request > columns.first && request <= columns.last);
  const marks = cliffMarks(shown, (request) => sharp(columnLeft(columns, request)), 9);
  for (const { x, cliff } of marks) paintCliffMark(context, x, top - 3, cliff, colours);
  paintCliffLabels(context, marks, { left: strip, right: shape.right + 8, y: top - LABEL_RISE }, colours);
  const wanted = requestLabels(context, timeline, columns);
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillStyle = colours.axis;
  for (const { x, text } of labelsThatFit(wanted, 14, 0, shape.right + 8)) context.fillText(text, x, bottom + 11);
}

/**
 * What moves: the request at the cursor, the message that is looked at, the cell of the keyboard and
 * the one below the pointer.
 * @param {Context} context
 * @param {{shape: PresenceShape, colours: Palette, cursor: number, message: number | null,
 *   cell: {row: number, request: number} | null, over: {row: number, request: number} | null}} picture
 */
export function paintPresenceCursor(context, { shape, colours, cursor, message, cell, over }) {
  const { columns, top, bottom, scale, strip, right } = shape;
  context.save();
  context.beginPath();
  context.rect(0, top, right + 8, bottom - top);
  context.clip();
  context.fillStyle = colours.cursor;
  if (cursor >= columns.first && cursor <= columns.last) {
    const x = columnLeft(columns, cursor);
    context.globalAlpha = 0.14;
    context.fillRect(x, top, Math.max(2, columns.step), bottom - top);
    context.globalAlpha = 1;
    context.fillRect(sharp(x + columns.step / 2 - 0.75), top, 1.5, bottom - top);
  }
  if (message !== null && message >= 0 && message < shape.count) {
    const y = rowTop(shape, Math.floor(message / scale.perRow));
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(strip - 2, y - 1, right - strip + 2, Math.max(3, scale.pixels + 1));
  }
  if (over) strokeCell(context, shape, over, colours.cursor, 1);
  if (cell) strokeCell(context, shape, cell, colours.accent, 2.5);
  context.restore();
}

/**
 * @param {Context} context
 * @param {PresenceShape} shape
 * @param {{row: number, request: number}} cell
 * @param {string} colour
 * @param {number} width
 */
function strokeCell(context, shape, { row, request }, colour, width) {
  const side = 7;
  const { step } = shape.columns;
  const { pixels } = shape.scale;
  const x = columnLeft(shape.columns, request) - Math.max(0, side - step) / 2;
  const y = rowTop(shape, row) - Math.max(0, side - pixels) / 2;
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(x - 1, y - 1, Math.max(side, step) + 2, Math.max(side, pixels) + 1);
}

const PERSONS_GROUP = SCREEN_GROUPS.indexOf('person');

/**
 * In rows too low for a colour each, a person's messages still are lines of their own, through the
 * kinds and over the cells: they are what people look for. Where there are too many, they would
 * cover the rest.
 * @param {CanvasRenderingContext2D} context
 * @param {PresencePicture} picture
 */
function paintPersons(context, { timeline, shape, colours }) {
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
