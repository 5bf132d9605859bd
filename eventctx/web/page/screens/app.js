/** `<ctx-app>`: the header, the screen of the place, and what is said to everybody. */

import { define, h } from '../core/element.js';
import { onKey, shownKey } from '../core/keys.js';
import { shownText } from '../parts/text.js';
import { go, linkTo, openLink, place } from '../core/place.js';
import { connection, lives, notice, problem, sessions, timeline } from '../core/state.js';
import { openHelp } from './help.js';
import { labelOf } from './session-rows.js';
import { keepChoice, keptChoice } from '../core/kept.js';

/** @typedef {import('../core/place.js').ScreenName} ScreenName */
/** @typedef {import('../core/element.js').Host} Host */

/** @type {Readonly<Record<ScreenName, string>>} */
const ELEMENTS = {
  sessions: 'ctx-sessions',
  session: 'ctx-session',
  lost: 'ctx-lost',
  compare: 'ctx-compare',
  search: 'ctx-search',
  integrity: 'ctx-integrity',
};

/** @type {readonly (readonly [ScreenName, string, string])[]} */
const SCREENS = [
  ['session', 'Session', ''],
  ['lost', 'Lost', 'l'],
  ['compare', 'Compare', 'c'],
  ['search', 'Search', '/'],
  ['integrity', 'Integrity', 'i'],
];

/** Where the list of sessions is, as it was filtered. */
const LIST = /** @type {const} */ ({ session: null, screen: 'sessions', query: '' });

define('ctx-app', (host) => {
  const main = h('main', { id: 'main', class: 'app-main', tabindex: -1 });
  host.replaceChildren(skipLink(main), header(host), main, ...notices(host), h('ctx-help'));
  host.effect(() => showScreen(main));
  host.effect(setTitle);
  const removeKeys = screenKeys();
  const stopLinks = followLinks(host);
  return () => {
    stopLinks();
    for (const remove of removeKeys) remove();
  };
});

/** @param {HTMLElement} main */
function skipLink(main) {
  const skip = (/** @type {Event} */ event) => {
    event.preventDefault(); // in a file the place stands behind #
    main.focus();
  };
  return h('a', { class: 'skip', href: '#main', text: 'Skip to content', on: { click: skip } });
}

/**
 * A screen of a session is made when its timeline is there, so it never has to be without one.
 * @param {HTMLElement} main
 */
function showScreen(main) {
  const { screen, session } = place.value;
  const isReading = session !== null && problem.value === null && timeline.value === null;
  main.setAttribute('aria-busy', String(isReading));
  const shown = main.firstElementChild;
  if (session !== null && problem.value !== null) {
    main.replaceChildren(problemBox(session, problem.value));
  } else if (isReading) {
    main.replaceChildren(h('p', { class: 'loading', text: `Reading ${shownText(labelOf(session, sessions.value))} …` }));
  } else if (shown?.localName !== ELEMENTS[screen] || shown.hasAttribute('data-session') !== (session !== null)) {
    const hadFocus = main.contains(document.activeElement);
    main.replaceChildren(h(ELEMENTS[screen], { 'data-session': session !== null }));
    // Who came by keyboard goes on in what is new, not at the top of the page.
    if (hadFocus) main.focus({ preventScroll: true });
  }
}

/** @param {string} session @param {string} reason */
function problemBox(session, reason) {
  return h(
    'section',
    { class: 'message-box' },
    h('h1', { text: `${shownText(session)} cannot be shown` }),
    h('p', { text: shownText(reason) }),
    h('p', null, h('a', { href: linkTo(LIST), text: 'All sessions' })),
  );
}

function setTitle() {
  const { session, screen } = place.value;
  const name = SCREENS.find(([one]) => one === screen)?.[1];
  const parts = screen === 'session' || screen === 'sessions' ? [] : [name];
  const label = session === null ? 'Sessions' : labelOf(session, sessions.value);
  document.title = shownText([...parts, label, 'eventctx'].join(' · '));
}

/** @param {Host} host */
function header(host) {
  const nav = h('nav', { 'aria-label': 'Screens', class: 'app-screens' });
  host.effect(() => {
    const { session, screen } = place.value;
    nav.hidden = session === null || problem.value !== null;
    nav.replaceChildren(...SCREENS.map((one) => screenLink(one, screen)));
  });
  const home = h('a', { class: 'app-name', text: 'eventctx', title: 'All sessions (s)' });
  host.effect(() => home.setAttribute('href', linkTo(LIST)));
  return h(
    'header',
    { class: 'app-header' },
    home,
    sessionLink(host),
    nav,
    h('span', { class: 'app-space' }),
    liveDot(host),
    themeSwitch(),
    h(
      'button',
      { class: 'quiet', type: 'button', 'aria-label': 'Keys', title: 'Keys (?)', on: { click: openHelp } },
      h('kbd', { text: '?', 'aria-hidden': 'true' }),
    ),
  );
}

/** @param {readonly [ScreenName, string, string]} screen @param {ScreenName} current */
function screenLink([screen, word, key], current) {
  return h(
    'a',
    {
      href: linkTo({ screen, query: screen === 'search' ? place.value.query : '' }),
      'aria-current': screen === current ? 'page' : null,
      'aria-keyshortcuts': key || null,
    },
    word,
    key === '' ? null : h('kbd', { text: shownKey(key), 'aria-hidden': 'true' }),
  );
}

/** @param {Host} host */
function sessionLink(host) {
  const link = h('a', { class: 'app-session' });
  host.effect(() => {
    const { session } = place.value;
    link.hidden = session === null;
    if (session === null) return;
    link.setAttribute('href', linkTo({ screen: 'session', query: '' }));
    link.textContent = shownText(labelOf(session, sessions.value));
    link.title = shownText(session);
  });
  return link;
}

/** @type {Readonly<Record<string, readonly [word: string, meaning: string]>>} */
const CONNECTIONS = {
  open: ['live', 'The page grows with the session.'],
  lost: ['connection lost', 'Trying to connect again; nothing will be missing.'],
  ended: ['not live', 'The page does not follow the session any more.'],
};

/** @param {Host} host */
function liveDot(host) {
  const dot = h('span', { class: 'app-live' });
  host.effect(() => {
    const [word, meaning] = CONNECTIONS[connection.value] ?? ['', ''];
    // The head of the session's own screen says more of it while all is well.
    const saidThere = place.value.screen === 'session' || !lives.value;
    dot.hidden = word === '' || (saidThere && connection.value === 'open');
    dot.className = `app-live is-${connection.value}`;
    dot.title = meaning;
    dot.replaceChildren(h('span', { class: 'dot', 'aria-hidden': 'true' }), word);
  });
  return dot;
}

/** @param {Host} host */
function notices(host) {
  const polite = h('div', { role: 'status', class: 'notice' });
  const alert = h('div', { role: 'alert', class: 'notice is-error' });
  host.effect(() => {
    const said = notice.value;
    const region = said?.isError ? alert : polite;
    for (const one of [polite, alert]) one.textContent = '';
    if (said === null) return;
    region.textContent = shownText(said.text);
    const timer = setTimeout(() => (notice.value = null), 6000);
    return () => clearTimeout(timer);
  });
  return [polite, alert];
}

function screenKeys() {
  /** @param {ScreenName} screen */
  const open = (screen) => () => {
    if (place.peek().session === null) return false;
    go({ screen, query: '' });
    return true;
  };
  return [
    onKey('l', 'Words of a person that are out of view', open('lost')),
    onKey('c', 'Compare two requests', open('compare')),
    onKey('/', 'Search', () => {
      // What filters the list is what one looks for; of a session the last search is over.
      const { session, query } = place.peek();
      go({ screen: 'search', query: session === null ? query : '' });
    }),
    onKey('i', 'Integrity: what is verified', open('integrity')),
    onKey('Escape', 'Back to the session, or to all', () => {
      go(place.peek().session === null ? LIST : { screen: 'session', query: '' });
    }, { screen: ['lost', 'compare', 'search', 'integrity'] }),
    onKey('s', 'All sessions', () => go(LIST)),
    onKey('?', 'All keys', openHelp),
  ];
}

/**
 * Links within the page change the place instead of loading it again; the browser's own ways to
 * open a link elsewhere stay.
 * @param {HTMLElement} host
 */
function followLinks(host) {
  /** @param {MouseEvent} event */
  function follow(event) {
    const link = event.target instanceof Element ? event.target.closest('a[href]') : null;
    if (link === null || event.defaultPrevented || event.button !== 0 || link.hasAttribute('target')) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const href = link.getAttribute('href') ?? '';
    if (!/^#?\/(s\/|search|\?|$)/.test(href)) return;
    event.preventDefault();
    openLink(href);
  }
  host.addEventListener('click', follow);
  return () => host.removeEventListener('click', follow);
}

/** @typedef {'system' | 'light' | 'dark'} Theme */

/** @type {Readonly<Record<Theme, readonly [sign: string, next: Theme]>>} */
const THEMES = { system: ['◐', 'light'], light: ['☀', 'dark'], dark: ['☾', 'system'] };

/** @returns {HTMLElement} */
function themeSwitch() {
  const sign = h('span', { 'aria-hidden': 'true' });
  const button = h('button', { type: 'button', class: 'quiet', on: { click: () => show(THEMES[now][1]) } }, sign);
  let now = /** @type {Theme} */ (keptChoice('theme', 'system'));
  if (!Object.hasOwn(THEMES, now)) now = 'system';
  describe();
  return button;

  function describe() {
    const [character, next] = THEMES[now];
    sign.textContent = character;
    button.setAttribute('aria-label', `Theme: ${now}`);
    button.title = `Theme: ${now}. Click for ${next}.`;
  }

  /** @param {Theme} theme */
  function show(theme) {
    now = theme;
    keepChoice('theme', now);
    document.documentElement.style.colorScheme = now === 'system' ? '' : now;
    describe();
  }
}
