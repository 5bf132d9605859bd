// An image or a document in a message. An image is shown only as a blob of a type that its first bytes prove; one at an
// address is never fetched, and a very large one waits until it is asked for.

import { h } from '../core/element.js';
import { countText } from '../parts/numbers.js';
import { shownText } from '../parts/text.js';
import { dataText } from '../parts/json-tree.js';
import { saveFile } from '../parts/saving.js';

/** @type {readonly [string, string, number[]][]} type, its name, and the bytes that it begins with */
const IMAGE_TYPES = [
  ['image/png', 'PNG', [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ['image/jpeg', 'JPEG', [0xff, 0xd8, 0xff]],
  ['image/gif', 'GIF', [0x47, 0x49, 0x46, 0x38]],
];

// Of any provider's largest image; more could stop the page.
const MOST_IMAGE_CHARACTERS = 64 * 1024 * 1024;
const MOST_SHOWN_AT_ONCE = 6 * 1024 * 1024;

/** @param {any} block an image block of any dialect @returns {HTMLElement} */
export function imageView(block) {
  const view = h('div', { class: 'part image' });
  const data = imageData(block);
  if (data === null) {
    const address = imageAddress(block);
    const about = address === null ? 'kept elsewhere' : `at ${shownText(address.slice(0, 400))}`;
    view.append(imageNote(`image, ${about}; its pixels are not in the log`));
    return view;
  }
  const type = checkedImageType(data);
  if (type === null) {
    view.append(imageNote('image of a type that is not shown here'));
    return view;
  }
  const [media, name] = type;
  const show = () => view.replaceChildren(shownImage(data, media, view));
  const text = `Show the image (${name}, ${sizeOfBase64(data)})`;
  if (data.length > MOST_SHOWN_AT_ONCE) view.append(h('button', { type: 'button', text, on: { click: show } }));
  else show();
  return view;
}

/** @param {string} base64 */
function sizeOfBase64(base64) {
  return `${countText(Math.max(1, Math.round((base64.length * 3) / 4096)))} kB`;
}

/**
 * The base64 of an image's bytes, from wherever the dialect keeps it; null if it is not at hand.
 * @param {any} block
 * @returns {string|null}
 */
export function imageData(block) {
  const inSource = block?.source?.data ?? block?.data;
  if (typeof inSource === 'string') return inSource;
  const address = imageAddress(block);
  if (address === null || !/^data:/i.test(address)) return null;
  const comma = address.indexOf(',');
  return /;base64$/i.test(address.slice(0, comma)) ? address.slice(comma + 1) : null;
}

/**
 * What the bytes are, by how they begin; null for all that a page does not show.
 * @param {string} base64
 * @returns {readonly [media: string, name: string]|null}
 */
export function checkedImageType(base64) {
  if (base64.length > MOST_IMAGE_CHARACTERS) return null;
  const begins = bytesOf(base64.slice(0, 64));
  if (begins === null) return null;
  const [media, name] = IMAGE_TYPES.find(([, , mark]) => mark.every((byte, at) => begins[at] === byte))
    ?? (isWebp(begins) ? ['image/webp', 'WebP'] : [null, null]);
  return media === null ? null : [media, name ?? media];
}

/** @param {any} block @returns {string|null} */
function imageAddress(block) {
  const url = block?.image_url?.url ?? block?.image_url ?? block?.source?.url ?? block?.url;
  return typeof url === 'string' ? url : null;
}

/** @param {Uint8Array} begins */
function isWebp(begins) {
  const letters = String.fromCharCode(...begins.slice(0, 12));
  return letters.startsWith('RIFF') && letters.endsWith('WEBP');
}

/** @param {string} base64 @param {string} media @param {HTMLElement} view */
function shownImage(base64, media, view) {
  const bytes = bytesOf(base64);
  if (bytes === null) return imageNote('image that cannot be decoded');
  const address = URL.createObjectURL(new Blob([bytes], { type: media }));
  const image = h('img', { src: address, alt: 'The image in this message' });
  const failed = () => view.replaceChildren(imageNote('image that cannot be decoded'));
  image.addEventListener('load', () => URL.revokeObjectURL(address), { once: true });
  image.addEventListener('error', failed, { once: true });
  return image;
}

/** @param {string} base64 @returns {Uint8Array<ArrayBuffer>|null} */
function bytesOf(base64) {
  try {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
    return bytes;
  } catch {
    return null; // no base64, or cut short by a redaction
  }
}

/** @param {string} text */
function imageNote(text) {
  return h('p', { class: 'part-note', text });
}

/** @typedef {{name: string, type: string, text: string|null, base64: string|null}} DocumentContents */

/**
 * A document: its text is shown, other contents can be saved; an address is never fetched, and nothing
 * is opened in the page.
 * @param {any} block of any dialect
 * @returns {HTMLElement|null} null where it holds no contents
 */
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
