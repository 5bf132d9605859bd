/** Every screen has a twin: the same answer as JSON, equal to the command line's `--json`. */

import { h } from '../core/element.js';
import { source } from '../core/state.js';

/**
 * A link to the twin, where there is a server to ask; else nothing.
 *
 * @param {string} session
 * @param {string} question such as `lost`
 * @param {Record<string, string | number>} [parameters]
 * @returns {HTMLElement | null}
 */
export function jsonTwin(session, question, parameters = {}) {
  if (!source.can.answers) return null;
  const query = new URLSearchParams(Object.entries(parameters).map(([name, value]) => [name, String(value)]));
  const path = `/api/s/${encodeURIComponent(session)}/${question}`;
  return h('p', { class: 'json-twin' },
    h('a', { href: query.size > 0 ? `${path}?${query}` : path, target: '_blank', rel: 'noopener' }, 'This as JSON'));
}
