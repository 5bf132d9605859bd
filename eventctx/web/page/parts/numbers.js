/** Numbers, times and names as a person reads them: the one place that formats them. */

const GROUPED = new Intl.NumberFormat('en-US');

/** @param {number} value @returns {string} `81,315` */
export function countText(value) {
  return GROUPED.format(value);
}

/** `1 turn`, `7 turns`. @param {number} count @param {string} noun @param {string} [plural] */
export function counted(count, noun, plural = `${noun}s`) {
  return `${countText(count)} ${count === 1 ? noun : plural}`;
}

/** A change, with its sign: `+812`, `−81,315`, `0`. @param {number} change @returns {string} */
export function signed(change) {
  if (change === 0) return '0';
  return `${change > 0 ? '+' : '−'}${countText(Math.abs(change))}`;
}

/**
 * Tokens in full: `81,315`, or `~15,940` where they are estimated.
 * @param {number} tokens
 * @param {boolean | number} [estimated]
 */
export function tokensText(tokens, estimated = false) {
  return `${estimated ? '~' : ''}${countText(tokens)}`;
}

/**
 * Tokens in three digits, for narrow places: `812`, `9.8k`, `81k`, `1.2M`.
 * @param {number} tokens
 * @param {boolean | number} [estimated]
 */
export function shortTokens(tokens, estimated = false) {
  const sign = estimated ? '~' : '';
  if (tokens < 1000) return `${sign}${Math.round(tokens)}`;
  // 999,950 would read 1000k.
  const [unit, letter] = tokens < 999_500 ? [1000, 'k'] : [1_000_000, 'M'];
  const scaled = tokens / unit;
  return `${sign}${scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)}${letter}`;
}

/** US dollars, below a cent with two figures that count. @param {number} dollars @returns {string} `$1.23` */
export function costText(dollars) {
  const digits = dollars === 0 || dollars >= 0.01
    ? { minimumFractionDigits: 2, maximumFractionDigits: 2 }
    : { maximumSignificantDigits: 2 };
  return `$${dollars.toLocaleString('en-US', digits)}`;
}

/** @param {number} share from 0 to 1 @returns {string} `62 %` */
export function percentText(share) {
  const percent = share * 100;
  return `${percent > 0 && percent < 1 ? '< 1' : Math.round(percent)} %`;
}

/** @param {number} ms since 1970 @returns {string} `2026-11-23 02:00:30 UTC` */
export function utcText(ms) {
  const time = new Date(ms);
  if (Number.isNaN(time.getTime())) return 'no time';
  return `${time.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** @param {number} ms since 1970 @returns {string} `02:00:30`, in UTC */
export function clockText(ms) {
  return utcText(ms).slice(11, 19);
}

/** @type {readonly (readonly [string, number])[]} */
const UNITS = [
  ['year', 365.25 * 86_400_000],
  ['month', 30.4375 * 86_400_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];

/**
 * `3 minutes ago`; always together with the time itself, as a title.
 * @param {number} ms since 1970
 * @param {number} [now]
 */
export function agoText(ms, now = Date.now()) {
  const passed = now - ms;
  if (Number.isNaN(passed)) return 'no time';
  if (passed < -60_000) return utcText(ms); // another machine's clock
  for (const [unit, length] of UNITS) {
    if (passed >= length) return `${counted(Math.floor(passed / length), unit)} ago`;
  }
  return 'just now';
}

/** @param {number} ms @returns {string} `350 ms`, `4.2 s`, `3 min 20 s` */
export function durationText(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${countText(Math.floor(seconds / 3600))} h ${Math.floor((seconds % 3600) / 60)} min`;
}
