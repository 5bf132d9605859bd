/**
 * Values that tell who read them when they change.
 *
 * A signal holds a value. A computed is made of others and is made again when it is read after one
 * of them changed. An effect runs again after anything that it read changed. Effects run together
 * at the end of a batch, each once, in the order in which they were made.
 */

/** @template T @typedef {{value: T, peek: () => T}} Signal */
/** @template T @typedef {{readonly value: T, peek: () => T}} Computed */

/**
 * What reads: a computed or an effect. `sources` are with the version that was read.
 * @typedef {{sources: Map<Read, number>, stale: () => void}} Reader
 */

/**
 * What is read. `refresh` makes a computed that may be out of date; its version then says whether
 * it came out otherwise.
 * @typedef {{version: number, readers: Set<Reader>, refresh: () => void}} Read
 */

/** @type {Reader | null} */
let currentReader = null;
let batchDepth = 0;
let madeEffects = 0;
/** Effects to run at the end of the batch, with their place in the order. @type {Map<() => void, number>} */
const waitingEffects = new Map();

/** @template T @param {T} initial @returns {Signal<T>} */
export function signal(initial) {
  let held = initial;
  /** @type {Read} */
  const read = { version: 0, readers: new Set(), refresh: () => {} };
  return {
    get value() {
      noteRead(read);
      return held;
    },
    set value(next) {
      if (Object.is(next, held)) return;
      held = next;
      read.version++;
      batch(() => tellReaders(read));
    },
    peek: () => held,
  };
}

/** @template T @param {() => T} make @returns {Computed<T>} */
export function computed(make) {
  /** @type {T | undefined} */
  let held;
  let state = /** @type {'new' | 'fresh' | 'stale'} */ ('new');
  /** @type {Reader} */
  const reader = {
    sources: new Map(),
    stale: () => {
      if (state === 'stale') return;
      if (state === 'fresh') state = 'stale';
      tellReaders(read);
    },
  };
  /** @type {Read} */
  const read = {
    version: 0,
    readers: new Set(),
    refresh: () => {
      if (state === 'fresh') return;
      if (state === 'stale' && !anySourceChanged(reader)) {
        state = 'fresh';
        return;
      }
      const before = state;
      state = 'new'; // should it fail, it is made again when it is read again
      const next = reading(reader, make);
      if (before === 'new' || !Object.is(next, held)) read.version++;
      state = 'fresh';
      held = next;
    },
  };
  function current() {
    read.refresh();
    return /** @type {T} */ (held);
  }
  return {
    get value() {
      // Also noted when it fails: who reads it is told when it may succeed.
      try {
        return current();
      } finally {
        noteRead(read);
      }
    },
    peek: () => current(),
  };
}

/**
 * Runs at once, and again after anything that it read changed. What it returns, if a function, is
 * called before the next run and at the end.
 * @param {() => void | (() => void)} run
 * @returns {() => void} ends it
 */
export function effect(run) {
  let ended = false;
  const order = madeEffects++;
  /** @type {void | (() => void)} */
  let cleanup;
  /** @type {Reader} */
  const reader = { sources: new Map(), stale: () => waitingEffects.set(again, order) };
  function again() {
    if (!ended && anySourceChanged(reader)) runNow();
  }
  function runNow() {
    if (cleanup) untracked(cleanup);
    cleanup = undefined;
    const next = reading(reader, run);
    // It may have ended itself while it ran.
    if (ended) next?.();
    else cleanup = next;
  }
  function stop() {
    ended = true;
    forgetSources(reader);
    waitingEffects.delete(again);
    if (cleanup) untracked(cleanup);
    cleanup = undefined;
  }
  runNow();
  return stop;
}

/** Changes several signals; effects run once, after all of them. @template T @param {() => T} change @returns {T} */
export function batch(change) {
  batchDepth++;
  try {
    return change();
  } finally {
    try {
      if (batchDepth === 1) runWaitingEffects();
    } finally {
      batchDepth--;
    }
  }
}

/** Reads without becoming a reader of what is read. @template T @param {() => T} run @returns {T} */
export function untracked(run) {
  const before = currentReader;
  currentReader = null;
  try {
    return run();
  } finally {
    currentReader = before;
  }
}

// An effect that changes what it reads would run for ever; a page must not hang on a mistake.
const MOST_ROUNDS = 100;

function runWaitingEffects() {
  /** @type {unknown[]} */
  const errors = [];
  for (let round = 0; waitingEffects.size > 0; round++) {
    if (round === MOST_ROUNDS) {
      waitingEffects.clear();
      throw new Error('an effect changes what it reads, again and again');
    }
    const now = [...waitingEffects].sort(([, a], [, b]) => a - b);
    waitingEffects.clear();
    for (const [again] of now) {
      // One broken pane must not keep the others from being drawn.
      try {
        again();
      } catch (error) {
        errors.push(error);
      }
    }
  }
  if (errors.length > 0) throw errors[0];
}

/** @template T @param {Reader} reader @param {() => T} run @returns {T} */
function reading(reader, run) {
  forgetSources(reader);
  const before = currentReader;
  currentReader = reader;
  try {
    return run();
  } finally {
    currentReader = before;
  }
}

/** @param {Read} read */
function noteRead(read) {
  if (currentReader === null) return;
  read.readers.add(currentReader);
  // Of two reads in one run the first counts: the value may have changed in between.
  if (!currentReader.sources.has(read)) currentReader.sources.set(read, read.version);
}

/** @param {Reader} reader */
function anySourceChanged(reader) {
  for (const [source, version] of reader.sources) {
    try {
      source.refresh();
    } catch {
      return true; // the reader will meet the error where it can handle it
    }
    if (source.version !== version) return true;
  }
  return false;
}

/** @param {Read} read */
function tellReaders(read) {
  for (const reader of [...read.readers]) reader.stale();
}

/** @param {Reader} reader */
function forgetSources(reader) {
  for (const source of reader.sources.keys()) source.readers.delete(reader);
  reader.sources.clear();
}
