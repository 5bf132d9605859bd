/**
 * The digest of a view, made again in the browser from the marks of its entries.
 *
 * A mark is what the digest covers of one entry: its body's digest and how it is shown. The server
 * sends the marks of messages once; an entry that is no whole message carries its own.
 */

/** @import { Timeline } from './timeline.js' */

/** What a view digest begins with: the word, and the version of what it covers. */
const DIGEST_PREFIX = [...'view'].map((letter) => letter.charCodeAt(0)).concat(1);

/** The marks of all messages in one array: those of message `n` lie from `ends[n - 1]` to `ends[n]`. */
export class MessageMarks {
  /** @param {string[]} marks one for each message number, in hex */
  constructor(marks) {
    this.ends = new Int32Array(marks.length);
    let length = 0;
    marks.forEach((mark, number) => {
      length += mark.length / 2;
      this.ends[number] = length;
    });
    this.bytes = new Uint8Array(length);
    marks.forEach((mark, number) => writeHex(mark, this.bytes, number === 0 ? 0 : this.ends[number - 1]));
  }

  get count() {
    return this.ends.length;
  }

  /** The marks of a run of messages. @param {number} first @param {number} last */
  of(first, last) {
    return this.bytes.subarray(first === 0 ? 0 : this.ends[first - 1], this.ends[last]);
  }
}

/**
 * The digest (hex) of a request's view. Throws an Error where a mark is not known.
 * @param {Timeline} timeline
 * @param {number} request
 * @param {MessageMarks} marks
 * @returns {Promise<string>}
 */
export async function viewDigest(timeline, request, marks) {
  /** @type {Uint8Array[]} */
  const parts = [Uint8Array.from(DIGEST_PREFIX)];
  for (const id of timeline.view(request)) {
    if (id < 0) {
      const { mark } = timeline.extras[-id - 1];
      // A file of the structure leaves out those in which ids of calls stand.
      if (mark === '') throw new Error(`digest: the mark of entry ${id} is left out`);
      const bytes = new Uint8Array(mark.length / 2);
      writeHex(mark, bytes, 0);
      parts.push(bytes);
    } else if (id < marks.count) parts.push(marks.of(id, id));
    else throw new Error(`digest: the mark of message #${id} is not known yet`);
  }
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', whole));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * Whether the view that the browser derives is the one whose digest was recorded.
 * @param {Timeline} timeline
 * @param {number} request
 * @param {MessageMarks} marks
 * @returns {Promise<boolean>}
 */
export async function viewHolds(timeline, request, marks) {
  return (await viewDigest(timeline, request, marks)) === timeline.requests.digest[request];
}

/** @param {string} hex @param {Uint8Array} into @param {number} at */
function writeHex(hex, into, at) {
  for (let place = 0; place < hex.length; place += 2) {
    into[at++] = parseInt(hex.slice(place, place + 2), 16);
  }
}
