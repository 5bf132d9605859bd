/**
 * The style sheet's colours, as the canvas needs them: read once per theme, not per stroke.
 *
 * A canvas knows no custom properties, and the system colours of a forced theme have to be asked of
 * an element that the theme may not repaint.
 */

import { h } from '../core/element.js';
import { computed, signal } from '../core/signals.js';

/**
 * `groups` in the order of the five groups of the screens. `forced`: the person chose the few
 * colours that there are, so patterns alone tell the groups apart.
 * @typedef {{groups: string[], beside: string, ground: string, grid: string, axis: string, text: string,
 *   accent: string, budget: string, cursor: string, reported: string, cache: string, window: string,
 *   warn: string, forced: boolean, font: string, ratio: number}} Palette
 */

const GROUP_COLOURS = ['--g-system', '--g-person', '--g-model', '--g-result', '--g-summary'];

const themes = signal(0);
const MEDIA = ['(prefers-color-scheme: dark)', '(forced-colors: active)', '(prefers-contrast: more)'];
let watching = false;

/** Read as a signal: another theme or another density of pixels makes a new one. */
export const palette = computed(() => {
  watchThemes();
  themes.value;
  return readPalette();
});

function watchThemes() {
  if (watching) return;
  watching = true;
  const changed = () => (themes.value += 1);
  for (const media of MEDIA) matchMedia(media).addEventListener('change', changed);
  new MutationObserver(changed).observe(document.documentElement, {
    attributeFilter: ['style'],
  });
  watchDensity(changed);
}

/** A zoom, or a move to another screen, gives each CSS pixel other device pixels. @param {() => void} changed */
function watchDensity(changed) {
  const density = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
  density.addEventListener(
    'change',
    () => {
      changed();
      watchDensity(changed);
    },
    { once: true },
  );
}

/** @returns {Palette} */
function readPalette() {
  const probe = h('span', { class: 'chart-probe', hidden: true });
  document.documentElement.append(probe);
  const style = getComputedStyle(probe);
  /** @param {string} variable */
  function colour(variable) {
    probe.style.setProperty('color', `var(${variable})`);
    return style.color;
  }
  const forced = matchMedia('(forced-colors: active)').matches;
  const text = colour('--text');
  const read = {
    groups: GROUP_COLOURS.map((name) => (forced ? text : colour(name))),
    beside: forced ? text : colour('--g-system'),
    ground: colour('--chart-bg'),
    grid: colour('--chart-grid'),
    axis: colour('--chart-axis'),
    text,
    accent: colour('--accent'),
    budget: colour('--chart-budget'),
    cursor: colour('--chart-cursor'),
    reported: colour('--chart-reported'),
    cache: forced ? text : colour('--chart-cache'),
    window: colour('--chart-window'),
    warn: colour('--warn'),
    forced,
    font: `13px ${style.fontFamily}`,
    ratio: devicePixelRatio || 1,
  };
  probe.remove();
  return read;
}
