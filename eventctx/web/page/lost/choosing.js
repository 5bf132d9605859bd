/** Messages that a person chooses on the lost screen, and the one command that brings them back. */

import { h } from '../core/element.js';
import { signal } from '../core/signals.js';
import { commandLine } from '../parts/copying.js';
import { counted } from '../parts/numbers.js';

/** @typedef {import('../core/element.js').Host} Host */
/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * `box` is a checkbox for a message, `add` chooses several, `bar` has the command. Boxes of one
 * message are one choice, wherever they are.
 *
 * @typedef {{box: (number: number, label: string) => HTMLInputElement,
 *   add: (numbers: number[]) => void, clear: () => void, bar: HTMLElement}} Choice
 */

/**
 * @param {Host} host that holds all the boxes
 * @param {() => Timeline | null} session whose messages they are
 * @returns {Choice}
 */
export function choiceOfMessages(host, session) {
  const chosen = signal(/** @type {ReadonlySet<number>} */ (new Set()));
  const bar = h('section', { class: 'lost-chosen', 'aria-label': 'What is chosen', hidden: true });
  const count = h('p', { role: 'status' });
  const command = h('div');
  const clear = () => (chosen.value = new Set());
  bar.replaceChildren(count, command, h('button', {
    type: 'button', class: 'quiet', text: 'Choose none',
    on: {
      click: () => {
        clear();
        // The button goes away with the bar; the keyboard stays on this screen.
        host.querySelector('h1')?.focus();
      },
    },
  }));
  host.effect(() => {
    const numbers = [...chosen.value].sort((a, b) => a - b);
    const now = session();
    for (const box of host.querySelectorAll('input.choose')) showChoice(box, chosen.value);
    bar.hidden = numbers.length === 0;
    count.textContent = numbers.length === 0 ? '' : `${counted(numbers.length, 'message')} chosen. This brings ${numbers.length === 1 ? 'it' : 'them'} back:`;
    command.replaceChildren(...(now === null || numbers.length === 0 ? [] : [commandLine(restoreCommand(now, ...numbers))]));
  });
  return {
    bar,
    clear,
    add: (numbers) => (chosen.value = new Set([...chosen.peek(), ...numbers])),
    box: (number, label) => h('input', {
      type: 'checkbox', class: 'choose', 'data-number': number, 'aria-label': label, checked: chosen.peek().has(number),
      on: {
        change: (event) => {
          const next = new Set(chosen.peek());
          if (event.target.checked) next.add(number);
          else next.delete(number);
          chosen.value = next;
        },
      },
    }),
  };
}

/** @param {Element} box @param {ReadonlySet<number>} chosen */
function showChoice(box, chosen) {
  if (box instanceof HTMLInputElement) box.checked = chosen.has(Number(box.dataset.number));
}

/**
 * The command that brings messages back. An imported session changes by import alone, so there it
 * makes a fork.
 *
 * @param {Timeline} timeline
 * @param {number[]} numbers
 * @returns {(string | number)[]}
 */
export function restoreCommand(timeline, ...numbers) {
  const { session } = timeline;
  // Programs name their sessions by ids; a person types a shorter name.
  const short = session.length > 24 ? session.slice(0, 8) : session;
  const fork = timeline.mirror === null ? [] : ['--fork', `${short}-restored`];
  return ['eventctx', 'restore', session, ...numbers, ...fork];
}
