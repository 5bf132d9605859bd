// A document in a message: its text is shown, other contents can be saved; an address is never
// fetched, and nothing is opened in the page.

import { h } from '../core/element.js';
import { dataText } from '../parts/data-text.js';
import { saveFile } from '../parts/saving.js';
import { shownText } from '../parts/text.js';
import { bytesOf, sizeOfBase64 } from './image.js';

/** @typedef {{name: string, type: string, text: string|null, base64: string|null}} DocumentContents */

/** @param {any} block a document's block of any dialect @returns {HTMLElement|null} null where it holds no contents */
export function documentView(block) {
  const found = documentContents(block);
  if (found === null) return null;
  const { name, type, text, base64 } = found;
  const words = text ?? (/^text\/|json|xml/.test(type) ? decodedText(base64 ?? '') : null);
  const about = [name, type, base64 === null ? '' : sizeOfBase64(base64)].filter(Boolean).join(' · ');
  return h('div', null,
    h('p', { class: 'part-note' }, shownText(about), ' ',
      base64 === null ? null : h('button', {
        type: 'button', text: 'Save', 'aria-label': `Save ${shownText(name)}`, on: { click: () => saveBytes(name, base64) },
      })),
    words === null ? null : dataText(words));
}

/** Name and contents, from wherever the dialect keeps them. @param {any} block @returns {DocumentContents|null} */
export function documentContents(block) {
  const source = block?.source ?? block?.file ?? block?.input_audio ?? block;
  const name = [block?.title, source?.filename, block?.filename].find((one) => typeof one === 'string') || 'document';
  const given = source?.data ?? source?.file_data;
  if (typeof given !== 'string') return null;
  const [, named, inAddress] = /^data:([^;,]*);base64,([^]*)$/i.exec(given) ?? [];
  const type = String(named ?? source.media_type ?? source.format ?? '');
  if (source.type === 'text') return { name, type, text: given, base64: null };
  return { name, type, text: null, base64: inAddress ?? given };
}

/** @param {string} base64 @returns {string|null} */
function decodedText(base64) {
  const bytes = bytesOf(base64);
  return bytes === null ? null : new TextDecoder().decode(bytes);
}

/** @param {string} name @param {string} base64 */
function saveBytes(name, base64) {
  const bytes = bytesOf(base64);
  if (bytes !== null) saveFile(name, bytes);
}
