/** Facts, each after its name. */

import { h } from '../core/element.js';

/** @typedef {readonly [name: string, value: import('../core/element.js').Children]} Fact */

/** Those without a value (null, or no text) are left out. @param {readonly (Fact | null)[]} facts @returns {HTMLElement} */
export function factsView(facts) {
  return h('dl', { class: 'facts' }, facts.flatMap((fact) =>
    fact === null || fact[1] === null || fact[1] === '' ? [] : [h('dt', { text: fact[0] }), h('dd', null, fact[1])]));
}
