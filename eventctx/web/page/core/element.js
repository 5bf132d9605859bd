/**
 * Making elements and defining custom ones.
 *
 * Text reaches the page as text nodes only, and styles by the style sheets or by custom
 * properties, so a strict content security policy holds.
 */

import { effect } from './signals.js';

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Child | Child[] | Child[][]} Children */

/**
 * `class`, `text` (all of the content, as text), `on` (listeners by event), `vars` (custom
 * properties of style, `--name`), `value`, `checked` and `disabled` as properties; the rest are
 * attributes as they are: `true` sets an empty one, `false` and `null` leave it out.
 * @typedef {{class?: string | null, text?: string | number, on?: Record<string, (event: any) => void>,
 *   vars?: Record<string, string>, [attribute: string]: any}} Props
 */

/** A custom element: its effects end when it leaves the page. @typedef {HTMLElement & {effect: (run: () => void | (() => void)) => void}} Host */

const PROPERTIES = new Set(['value', 'checked', 'disabled']);

/**
 * @typedef {{
 *   <K extends keyof HTMLElementTagNameMap>(
 *     tag: K, props?: Props | null, ...children: Children[]): HTMLElementTagNameMap[K],
 *   (tag: string, props?: Props | null, ...children: Children[]): HTMLElement,
 * }} MakeElement
 */

/** Makes an element: `h('p', { class: 'note' }, 'See ', link)`. */
export const h = /** @type {MakeElement} */ (makeElement);

/** @param {string} tag @param {Props | null} [props] @param {Children[]} children @returns {HTMLElement} */
function makeElement(tag, props = null, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) setProp(made, name, value);
  addChildren(made, children);
  return made;
}

/** @param {HTMLElement} made @param {string} name @param {any} value */
function setProp(made, name, value) {
  if (name === 'on') {
    for (const [event, listener] of Object.entries(value)) {
      made.addEventListener(event, /** @type {EventListener} */ (listener));
    }
  } else if (name === 'text') {
    made.textContent = String(value);
  } else if (name === 'vars') {
    for (const [variable, set] of Object.entries(value)) {
      made.style.setProperty(variable, /** @type {string} */ (set));
    }
  } else if (PROPERTIES.has(name)) {
    Object.assign(made, { [name]: value });
  } else if (name.startsWith('on') || name === 'style' || name === 'srcdoc') {
    throw new Error(`${name} is not an attribute for h(): use on or vars`);
  } else if (value !== null && value !== undefined && value !== false) {
    made.setAttribute(name, value === true ? '' : String(value));
  }
}

/** @param {Node} parent @param {Children[]} children */
function addChildren(parent, children) {
  for (const child of /** @type {Child[]} */ (children.flat(3))) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Defines a custom element. `setup` runs each time it enters the page; what it returns, if a
 * function, runs when it leaves. Effects started by `host.effect` end then, too.
 * @param {string} name
 * @param {(host: Host) => void | (() => void)} setup
 */
export function define(name, setup) {
  class Defined extends HTMLElement {
    /** @type {(() => void)[]} */
    #ends = [];

    connectedCallback() {
      if (this.#ends.length > 0) return;
      const end = setup(this);
      this.#ends.push(end ?? (() => undefined));
    }

    disconnectedCallback() {
      // Taken first: an end may itself move elements.
      const ends = this.#ends;
      this.#ends = [];
      for (const end of ends.reverse()) end();
    }

    /** @param {() => void | (() => void)} run */
    effect(run) {
      this.#ends.push(effect(run));
    }
  }
  customElements.define(name, Defined);
}
