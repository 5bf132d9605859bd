/**
 * Patterns for the canvas: what colour says, a pattern says, too.
 *
 * Each is a small tile of lines or dots in one ink, repeated from the same corner everywhere, so that
 * it runs on over columns that are narrower than a tile.
 */

/** @typedef {'solid' | 'dots' | 'sparse' | 'rising' | 'falling' | 'crossed' | 'level' | 'upright'} PatternName */

/** Of the five groups of the screens, in their order. @type {readonly PatternName[]} */
export const GROUP_PATTERNS = ['dots', 'solid', 'rising', 'level', 'crossed'];

/** Of what is sent beside the messages. @type {PatternName} */
export const BESIDE_PATTERN = 'upright';

/**
 * How a cell of a standing is drawn: `full` or `half` of its height, in a pattern, and how strong.
 * Names of standings as in parts/standing.js; what is missing is not drawn.
 * @type {Readonly<Record<string, {pattern: PatternName, half: boolean, ground: number, ink: number}>>}
 */
export const STANDING_STYLES = {
  whole: { pattern: 'solid', half: false, ground: 0.85, ink: 0 },
  shortened: { pattern: 'solid', half: true, ground: 0.85, ink: 0 },
  stripped: { pattern: 'upright', half: false, ground: 0.45, ink: 0.85 },
  partial: { pattern: 'dots', half: false, ground: 0.45, ink: 0.85 },
  summarised: { pattern: 'sparse', half: false, ground: 0.1, ink: 0.6 },
  dropped: { pattern: 'rising', half: false, ground: 0.08, ink: 0.5 },
  merged: { pattern: 'crossed', half: false, ground: 0.07, ink: 0.4 },
  replaced: { pattern: 'falling', half: false, ground: 0.07, ink: 0.45 },
  set: { pattern: 'level', half: false, ground: 0.07, ink: 0.45 },
  cleared: { pattern: 'level', half: false, ground: 0.07, ink: 0.45 },
  omitted: { pattern: 'sparse', half: false, ground: 0, ink: 0.6 },
};

/** Tiles by their side in pixels. @type {Readonly<Record<PatternName, number>>} */
const TILE_SIDES = {
  solid: 4, dots: 4, sparse: 6, rising: 6, falling: 6, crossed: 6, level: 4, upright: 4,
};

/**
 * @typedef {{ink: string, ratio: number, tile: CanvasPattern}} MadePattern
 * @type {Map<string, MadePattern>}
 */
const madePatterns = new Map();

/**
 * A pattern in an ink on nothing. `solid` has no lines: it is null, and nothing is to be drawn.
 * @param {CanvasRenderingContext2D} context
 * @param {PatternName} name
 * @param {string} ink
 * @param {number} ratio device pixels for each CSS pixel
 * @returns {CanvasPattern | null}
 */
export function patternOf(context, name, ink, ratio) {
  if (name === 'solid') return null;
  const key = `${name} ${ink} ${ratio}`;
  const found = madePatterns.get(key);
  if (found) return found.tile;
  const side = TILE_SIDES[name];
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = Math.max(1, Math.round(side * ratio));
  const tileContext = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  tileContext.scale(canvas.width / side, canvas.width / side);
  tileContext.strokeStyle = tileContext.fillStyle = ink;
  drawTile(tileContext, name, side);
  const tile = /** @type {CanvasPattern} */ (context.createPattern(canvas, 'repeat'));
  tile.setTransform(new DOMMatrix().scale(side / canvas.width));
  // Themes and densities come and go; a few old tiles must not gather for ever.
  if (madePatterns.size > 64) madePatterns.clear();
  madePatterns.set(key, { ink, ratio, tile });
  return tile;
}

/** @param {CanvasRenderingContext2D} context @param {PatternName} name @param {number} side */
function drawTile(context, name, side) {
  const middle = side / 2;
  context.lineWidth = 1;
  context.beginPath();
  if (name === 'dots' || name === 'sparse') {
    context.rect(middle - 0.5, middle - 0.5, 1.2, 1.2);
    context.fill();
    return;
  }
  // Lines go on outside of the tile, so that their ends meet without a notch.
  if (name === 'rising' || name === 'crossed') {
    for (const shift of [-side, 0, side]) {
      context.moveTo(shift - 1, side + 1);
      context.lineTo(shift + side + 1, -1);
    }
  }
  if (name === 'falling' || name === 'crossed') {
    for (const shift of [-side, 0, side]) {
      context.moveTo(shift - 1, -1);
      context.lineTo(shift + side + 1, side + 1);
    }
  }
  if (name === 'level') {
    context.moveTo(0, middle);
    context.lineTo(side, middle);
  }
  if (name === 'upright') {
    context.moveTo(middle, 0);
    context.lineTo(middle, side);
  }
  context.stroke();
}

/**
 * Fills a path with a colour, and with a pattern over it.
 * @param {CanvasRenderingContext2D} context
 * @param {Path2D} path
 * @param {{colour: string, pattern: PatternName, ink: string, ground: number, strength: number, ratio: number}} style
 */
export function fillPatterned(context, path, { colour, pattern, ink, ground, strength, ratio }) {
  context.globalAlpha = ground;
  context.fillStyle = colour;
  if (ground > 0) context.fill(path);
  const tile = strength > 0 ? patternOf(context, pattern, ink, ratio) : null;
  if (tile) {
    context.globalAlpha = strength;
    context.fillStyle = tile;
    context.fill(path);
  }
  context.globalAlpha = 1;
}
