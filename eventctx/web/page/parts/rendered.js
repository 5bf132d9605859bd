/**
 * The nodes of a text with markup, from the tree that `eventctx/web/markdown_tree.py` makes of it.
 *
 * The tree is trusted in nothing: an element or a class that is not in these lists becomes its text,
 * and no attribute is taken over. A link opens only after its address was shown.
 */

import { h } from '../core/element.js';
import { copyButton } from './copying.js';
import { FOLD_CHARACTERS, moreButton, shownText, textNodes, UNFOLD_CHARACTERS } from './text.js';

/** A text, or `[tag, attributes, children]`. @typedef {string | [string, {class?: string, href?: string}, any[]]} TreeNode */

const TREE_TAGS = new Set([
  'blockquote', 'code', 'del', 'em', 'hr', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th',
  'thead', 'tr', 'ul',
]);
const TREE_CLASSES = new Set([
  'c', 'del', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hunk', 'ins', 'k', 'lang', 'm', 'mark', 'n', 's',
]);
/** Each takes its direction from its own first letter. */
const TAGS_WITH_DIRECTION = new Set(['li', 'p', 'td', 'th']);
const LINK_PROTOCOLS = new Set(['http:', 'https:', 'mailto:']);

/**
 * An element with the tree's blocks; of a long text, with a button that shows the rest.
 * @param {readonly TreeNode[]} tree
 * @param {{characters?: number, class?: string}} [options]
 * @returns {HTMLElement}
 */
export function renderedView(tree, { characters = FOLD_CHARACTERS, ...rest } = {}) {
  const view = h('div', { class: `rendered ${rest.class ?? ''}`.trim() });
  const sizes = tree.map(treeSize);
  const show = (/** @type {number} */ from, /** @type {number} */ room) => {
    let at = from;
    let left = room;
    for (; at < tree.length && left > 0; at++) {
      view.append(treeNode(tree[at]));
      left -= sizes[at];
    }
    const hidden = sizes.slice(at).reduce((sum, size) => sum + size, 0);
    if (hidden === 0) return;
    const more = moreButton(hidden, hidden > UNFOLD_CHARACTERS, () => {
      more.remove();
      show(at, UNFOLD_CHARACTERS);
    });
    view.append(more);
  };
  show(0, characters);
  return view;
}

/** @param {TreeNode} node @returns {number} characters */
function treeSize(node) {
  return typeof node === 'string' ? node.length : node[2].reduce((sum, one) => sum + treeSize(one), 0);
}

/** @param {TreeNode} node @returns {Node} */
function treeNode(node) {
  if (typeof node === 'string') {
    const nodes = textNodes(node);
    return nodes.length === 1 ? nodes[0] : h('span', null, nodes);
  }
  const [tag, attributes, children] = node;
  const inner = children.map(treeNode);
  if (tag === 'a') return linkOf(attributes.href ?? '', inner);
  const made = h(TREE_TAGS.has(tag) ? tag : 'span', {
    class: TREE_CLASSES.has(attributes.class ?? '') ? attributes.class : null,
    dir: TAGS_WITH_DIRECTION.has(tag) ? 'auto' : tag === 'pre' || tag === 'code' ? 'ltr' : null,
  }, inner);
  if (tag !== 'pre') return made;
  return h('div', { class: 'code' }, made, copyButton(() => treeText(node), 'this code', made));
}

/** @param {TreeNode} node @returns {string} */
function treeText(node) {
  return typeof node === 'string' ? node : node[2].map(treeText).join('');
}

/**
 * Words that show their address when they are pressed, and then offer to open it.
 * @param {string} address
 * @param {Node[]} words
 */
function linkOf(address, words) {
  const url = checkedAddress(address);
  if (url === null) return h('span', null, words);
  const shown = h('code', { text: shownText(url) });
  const asked = h('span', { class: 'asked', hidden: true }, shown, ' ',
    h('button', {
      type: 'button', text: 'Open', 'aria-label': `Open ${shownText(url)} in another tab`,
      on: { click: () => window.open(url, '_blank', 'noopener,noreferrer') },
    }), copyButton(() => url, 'the address', shown));
  const link = h('button', {
    type: 'button', class: 'link', title: shownText(url), 'aria-expanded': 'false',
    on: {
      click: () => {
        asked.hidden = !asked.hidden;
        link.setAttribute('aria-expanded', String(!asked.hidden));
      },
    },
  }, words);
  return h('span', null, link, asked);
}

/** @param {string} address @returns {string | null} as the browser would open it */
function checkedAddress(address) {
  try {
    const url = new URL(address);
    return LINK_PROTOCOLS.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
