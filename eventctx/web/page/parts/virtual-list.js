/**
 * `<ctx-virtual-list>`: a list of any length, of which only the rows in sight are in the page.
 *
 * Role `list` (its rows are `listitem`) unless the element is a `rowgroup`, in a table with one row of
 * heads.
 * Keys, with the focus in the list: arrows, j and k, Page Up and Down, Home and End.
 * Events: `rowfocus` and `rowopen` (Enter on a row), both with `detail.index`.
 * A row's focus is on the element with `data-row-focus` in it, such as a link, or on the row.
 * A row must have no outer margin: heights are measured from border to border.
 */

import { h } from '../core/element.js';
import { ListWindow } from './list-window.js';

/**
 * `key` says all that a row's height depends on: heights are remembered by it. `look` says what
 * else it shows; a row in the page is made again when its key or its look differs.
 * @typedef {{count: number, key: (row: number) => string | number, height: (row: number) => number,
 *   render: (row: number) => HTMLElement, look?: (row: number) => string | number}} Rows
 */

/** @typedef {'start' | 'center' | 'end'} Edge */
/** @typedef {{element: HTMLElement, stop: HTMLElement, key: string | number, look: string | number}} ShownRow */

/** @type {Rows} */
const NO_ROWS = { count: 0, key: () => '', height: () => 0, render: () => h('div') };

export class VirtualList extends HTMLElement {
  /** @type {Rows} */
  #rows = NO_ROWS;
  #focused = 0;
  /** Rows in the page. @type {Map<number, ShownRow>} */
  #shown = new Map();
  /** @type {WeakMap<Element, number>} */
  #rowOf = new WeakMap();
  #block = h('div', { class: 'list-block', role: 'presentation' });
  #space = h('div', { class: 'list-space', role: 'presentation' }, this.#block);
  #window = new ListWindow();
  #sizes = new ResizeObserver((entries) => this.#resized(entries));
  #scrolledTo = 0;
  #placeSoon = 0;

  constructor() {
    super();
    this.addEventListener('scroll', () => this.#scrolled());
    this.addEventListener('scrollend', () => this.#settle());
    this.addEventListener('focusin', (event) => this.#focusCame(event));
    this.addEventListener('keydown', (event) => this.#pressed(event));
  }

  connectedCallback() {
    if (!this.hasAttribute('role')) this.setAttribute('role', 'list');
    this.replaceChildren(this.#space);
    this.#sizes.observe(this);
  }

  disconnectedCallback() {
    this.#sizes.disconnect();
    cancelAnimationFrame(this.#placeSoon);
    for (const { element } of this.#shown.values()) element.remove();
    this.#shown.clear();
    this.#window.sight = 0;
  }

  get rows() {
    return this.#rows;
  }

  set rows(rows) {
    this.showRows(rows, -1);
  }

  /**
   * Takes other rows and brings one of them into sight, in one layout: two would draw rows twice.
   * @param {Rows} rows
   * @param {number} row -1: the place stays
   * @param {Edge | 'nearest'} [edge]
   */
  showRows(rows, row, edge = 'nearest') {
    this.#rows = rows;
    this.#focused = Math.max(0, Math.min(this.#focused, rows.count - 1));
    this.#window.reset(rows);
    if (row >= 0 && row < rows.count) {
      this.#window.settleAtAnchor();
      this.#window.aimAt(row, edge);
    }
    this.#place();
  }

  /** The row that has the focus, or had it last. */
  get focused() {
    return this.#focused;
  }

  set focused(row) {
    this.#focused = Math.max(0, Math.min(row, this.#rows.count - 1));
    this.#setTabStops();
  }

  /** Call it after the count of the rows grew, or after rows look otherwise. */
  update() {
    if (this.#rows.count < this.#window.heights.count) this.#window.reset(this.#rows);
    else this.#window.grow(this.#rows);
    this.#place();
  }

  /**
   * Brings a row into sight; 'nearest' moves only if it is not, and no farther than it must.
   * @param {number} row
   * @param {Edge | 'nearest'} [edge]
   */
  reveal(row, edge = 'nearest') {
    if (row < 0 || row >= this.#rows.count) return;
    this.#window.aimAt(row, edge);
    this.#place();
  }

  /** Moves the focus to a row, and brings it into sight. @param {number} row */
  focusRow(row) {
    if (this.#rows.count === 0) return;
    this.#focused = Math.max(0, Math.min(row, this.#rows.count - 1));
    this.reveal(this.#focused);
    this.#setTabStops();
    this.#focusAgain();
    this.#tell('rowfocus', this.#focused);
  }

  /** @param {ResizeObserverEntry[]} entries */
  #resized(entries) {
    let changed = false;
    let hostChanged = false;
    for (const { target, borderBoxSize, contentRect } of entries) {
      if (target === this) {
        this.#window.resize(contentRect.width, contentRect.height);
        hostChanged = true;
      } else {
        changed = this.#measured(target, borderBoxSize[0]?.blockSize ?? 0) || changed;
      }
    }
    if (hostChanged) this.#place();
    // Rows that are made here would be observed too late for this round, which is an error.
    else if (changed && this.#placeSoon === 0) {
      this.#placeSoon = requestAnimationFrame(() => this.#place());
    }
  }

  /** @param {Element} element @param {number} height @returns {boolean} whether it is another height */
  #measured(element, height) {
    const row = this.#rowOf.get(element);
    const shown = row === undefined ? undefined : this.#shown.get(row);
    if (row === undefined || shown?.element !== element || height === 0) return false;
    return this.#window.measured(row, shown.key, height);
  }

  /** Puts the rows in sight into the page, and the anchor where it belongs. */
  #place() {
    cancelAnimationFrame(this.#placeSoon);
    this.#placeSoon = 0;
    if (this.#window.sight === 0 || !this.isConnected) return;
    // New rows turn out higher or lower than estimated, so that others come into sight.
    for (let again = true, round = 0; again && round < 6; round++) {
      this.#window.settleAtAnchor();
      again = this.#render();
    }
    this.#window.settleAtAnchor();
    this.#space.style.setProperty('height', `${this.#window.scrollHeight}px`);
    this.#scrollTo(this.#window.scrollTop);
  }

  /** @param {number} to */
  #scrollTo(to) {
    if (Math.abs(this.scrollTop - to) >= 1) this.scrollTo({ top: to, behavior: 'instant' });
    this.#scrolledTo = this.scrollTop;
    this.#moveBlock();
  }

  #moveBlock() {
    const [first] = this.#window.rowsToShow();
    const y = this.#scrolledTo + this.#window.heights.before(first) - this.#window.top;
    this.#block.style.setProperty('transform', `translateY(${y}px)`);
  }

  #scrolled() {
    const moved = this.scrollTop - this.#scrolledTo;
    // Anything less is the place that we scrolled to, rounded.
    if (Math.abs(moved) < 1) return;
    this.#scrolledTo = this.scrollTop;
    this.#window.scrolled(this.#scrolledTo, moved);
    const changed = this.#render();
    if (changed) this.#place();
    else this.#moveBlock();
  }

  /** After short, exact moves in a very long list, the scroll bar is put where it belongs. */
  #settle() {
    if (this.#window.scale > 1) this.#scrollTo(this.#window.scrollTop);
  }

  /** @returns {boolean} whether a new row has another height than was thought */
  #render() {
    const [first, last] = this.#window.rowsToShow();
    const hadFocus = this.contains(document.activeElement) && document.activeElement !== this;
    for (const [row, { element }] of this.#shown) {
      if (row < first || row > last) this.#take(row, element);
    }
    /** @type {HTMLElement[]} */
    const fresh = [];
    /** @type {HTMLElement[]} */
    const elements = [];
    for (let row = first; row <= last; row++) elements.push(this.#shownRow(row, fresh));
    this.#putInOrder(elements);
    this.#setTabStops();
    // A row with the focus went out of sight: the list itself keeps it for the next key.
    if (hadFocus && !this.contains(document.activeElement)) this.#focusAgain();
    // All at once, after all changes: one layout.
    const heights = fresh.map((element) => element.getBoundingClientRect().height);
    return fresh.map((element, at) => this.#measured(element, heights[at] ?? 0)).includes(true);
  }

  /** Moves only what stands elsewhere. @param {readonly HTMLElement[]} elements */
  #putInOrder(elements) {
    let next = this.#block.firstElementChild;
    for (const element of elements) {
      if (element === next) next = next.nextElementSibling;
      else this.#block.insertBefore(element, next);
    }
  }

  #focusAgain() {
    (this.#shown.get(this.#focused)?.stop ?? this).focus({ preventScroll: true });
  }

  /** @param {number} row @param {HTMLElement} element */
  #take(row, element) {
    this.#sizes.unobserve(element);
    element.remove();
    this.#shown.delete(row);
  }

  /** @param {number} row @param {HTMLElement[]} fresh */
  #shownRow(row, fresh) {
    const rows = this.#rows;
    const key = rows.key(row);
    const look = rows.look?.(row) ?? '';
    const now = this.#shown.get(row);
    if (now !== undefined && now.key === key && now.look === look) {
      if (now.element.role !== 'row') now.element.setAttribute('aria-setsize', String(rows.count));
      return now.element;
    }
    if (now !== undefined) this.#take(row, now.element);
    const role = this.getAttribute('role') === 'rowgroup' ? 'row' : 'listitem';
    const place =
      role === 'row' ? { 'aria-rowindex': row + 2 } : { 'aria-posinset': row + 1, 'aria-setsize': rows.count };
    const made = h('div', { class: 'list-row', role, ...place }, rows.render(row));
    const inner = made.querySelector('[data-row-focus]');
    const stop = inner instanceof HTMLElement ? inner : made;
    this.#rowOf.set(made, row);
    this.#shown.set(row, { element: made, stop, key, look });
    this.#sizes.observe(made);
    fresh.push(made);
    return made;
  }

  /** One stop for the Tab key: the focused row, or the list while that row is out of sight. */
  #setTabStops() {
    for (const [row, { stop }] of this.#shown) stop.tabIndex = row === this.#focused ? 0 : -1;
    this.tabIndex = this.#shown.has(this.#focused) ? -1 : 0;
  }

  /** @param {FocusEvent} event */
  #focusCame(event) {
    const element = event.target instanceof Element ? event.target.closest('.list-row') : null;
    const row = element === null ? undefined : this.#rowOf.get(element);
    if (row === undefined || row === this.#focused) return;
    this.#focused = row;
    this.#setTabStops();
    this.#tell('rowfocus', row);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const { target } = event;
    if (!(target instanceof Element) || target.closest('input, select, textarea') !== null) return;
    const isRow = target === this || this.#rowOf.has(target);
    if (event.key === 'Enter' && isRow && this.#rows.count > 0) {
      this.#tell('rowopen', this.#focused);
    } else {
      const to = event.shiftKey ? null : this.#window.rowAfterKey(event.key, this.#focused);
      if (to === null) return;
      this.focusRow(to);
    }
    event.preventDefault();
  }

  /** @param {'rowfocus' | 'rowopen'} event @param {number} index */
  #tell(event, index) {
    this.dispatchEvent(new CustomEvent(event, { detail: { index }, bubbles: true }));
  }
}

customElements.define('ctx-virtual-list', VirtualList);
