/**
 * Fetches a timeline and makes typed arrays of it, off the main thread where there is a worker.
 *
 * The document of a long session is megabytes of JSON: reading it takes longer than a frame. The
 * worker fetches it itself and hands over the finished arrays.
 */

import { packDocument } from '../timeline/packing.js';

/** @import { PackedDocument } from '../timeline/packing.js' */

/** What the worker answers. @typedef {{id: number, packed?: PackedDocument, error?: string}} Decoded */

const WORKER_PLACE = '/page/worker.js';

/** @returns {Worker | null} null where the browser or the page's rules allow none */
function startDecoder() {
  if (typeof Worker === 'undefined') return null;
  try {
    return new Worker(/** @type {string} */ (workerAddress()), { type: 'module' });
  } catch {
    return null;
  }
}

/** The worker's address, as trusted as the browser asks for it: this policy knows no other. */
function workerAddress() {
  const types = /** @type {any} */ (globalThis).trustedTypes;
  if (!types) return WORKER_PLACE;
  const policy = types.createPolicy('eventctx', {
    createScriptURL(/** @type {string} */ place) {
      if (place === WORKER_PLACE) return place;
      throw new TypeError(`expected ${WORKER_PLACE}, found ${place}`);
    },
  });
  return policy.createScriptURL(WORKER_PLACE);
}

/** @param {string} address @returns {Promise<PackedDocument>} */
export async function fetchPacked(address) {
  return packDocument(await fetchJson(address));
}

/** Asks the server. Throws an Error with its words where it refuses. @param {string} address @returns {Promise<any>} */
export async function fetchJson(address) {
  return JSON.parse(await fetchText(address));
}

/** @param {string} address @returns {Promise<string>} */
export async function fetchText(address) {
  let response;
  try {
    response = await fetch(address, { headers: { accept: 'application/json' } });
  } catch {
    throw new Error('The server does not answer. Is `eventctx inspect` still running?');
  }
  const text = await response.text();
  if (!response.ok) {
    const words = refusalOf(text) ?? `The server answered ${response.status}.`;
    throw Object.assign(new Error(words), { status: response.status });
  }
  return text;
}

/** @param {string} text */
function refusalOf(text) {
  try {
    const { error } = JSON.parse(text);
    return typeof error === 'string' ? error : null;
  } catch {
    return null;
  }
}

export class TimelineDecoder {
  /** @param {() => Worker | null} [start] */
  constructor(start = startDecoder) {
    this.start = start;
    /** @type {Worker | null | undefined} undefined: not tried yet */
    this.worker = undefined;
    this.asked = 0;
    /** @type {Map<number, {address: string, resolve: (packed: PackedDocument) => void, reject: (error: Error) => void}>} */
    this.waiting = new Map();
  }

  /** @param {string} address @returns {Promise<PackedDocument>} */
  decode(address) {
    if (this.worker === undefined) this.begin();
    const { worker } = this;
    if (!worker) return fetchPacked(address);
    return new Promise((resolve, reject) => {
      const id = this.asked++;
      this.waiting.set(id, { address, resolve, reject });
      worker.postMessage({ id, address });
    });
  }

  begin() {
    const worker = this.start();
    this.worker = worker;
    if (!worker) return;
    worker.addEventListener('message', (event) => this.answered(event.data));
    // The worker could not be loaded, or broke: from here on the page does it itself.
    worker.addEventListener('error', () => this.giveUp());
  }

  /** @param {Decoded} answer */
  answered({ id, packed, error }) {
    const asked = this.waiting.get(id);
    this.waiting.delete(id);
    if (packed) asked?.resolve(packed);
    else asked?.reject(new Error(error));
  }

  giveUp() {
    this.worker?.terminate();
    this.worker = null;
    const left = [...this.waiting.values()];
    this.waiting.clear();
    for (const { address, resolve, reject } of left) fetchPacked(address).then(resolve, reject);
  }
}
