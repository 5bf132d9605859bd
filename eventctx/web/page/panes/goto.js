// A small dialog: to a message (#40), a position (@336) or a request (2.3).

import { h } from '../core/element.js';
import { go } from '../core/place.js';
import { timeline } from '../core/state.js';

/** @typedef {import('../timeline/timeline.js').Timeline} Timeline */

/**
 * Where an input leads to; null if it is not understood or not there.
 * @param {Timeline} now
 * @param {string} input
 * @returns {{message: number}|{at: number}|null}
 */
export function goalOf(now, input) {
  const text = input.trim();
  const message = /^#?(\d{1,9})$/.exec(text);
  if (message) {
    const number = Number(message[1]);
    return number < now.messages.count ? { message: number } : null;
  }
  const position = /^@(\d{1,15})$/.exec(text);
  if (position) return Number(position[1]) <= now.head ? { at: Number(position[1]) } : null;
  const request = now.requestNamed(text);
  return request < 0 ? null : { at: now.requests.position[request] };
}

/** Opens the dialog; it goes away by itself. */
export function askWhereTo() {
  const now = timeline.peek();
  if (now === null) return;
  const input = h('input', {
    type: 'text', id: 'goto-input', autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'goto-problem',
  });
  const problem = h('p', { id: 'goto-problem', class: 'muted', 'aria-live': 'polite' });
  const dialog = h('dialog', { class: 'goto', 'aria-label': 'Go to' },
    h('form', {
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          const goal = goalOf(now, input.value);
          if (goal === null) problem.textContent = 'There is no such message, position or request.';
          else {
            dialog.close();
            go(goal);
          }
        },
      },
    },
    h('label', { for: 'goto-input', text: 'Go to #message, @position or request (2.3)' }), input, problem,
    h('button', { type: 'submit', text: 'Go' })));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}
