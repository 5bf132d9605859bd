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
 * What reads: a computed or an effect.
 * @typedef {{order: number, sources: Set<Read>, stale: () => void}} Reader
 */

/** What is read: its readers. @typedef {{readers: Set<Reader>}} Read */

/** @type {Reader | null} */
let currentReader = null;
let batchDepth = 0;
let madeEffects = 0;
/** @type {Map<Reader, () => void>} */
const waitingEffects = new Map();

/**
 * @template T
 * @param {T} initial
 * @returns {Signal<T>}
 */
export function signal(initial) {
  let held = initial;
  /** @type {Read} */
  const read = { readers: new Set() };
  return {
    get value() {
      noteRead(read);
      return held;
    },
    set value(next) {
      if (Object.is(next, held)) return;
      held = next;
      batch(() => tellReaders(read));
    },
    peek: () => held,
  };
}

/**
 * @template T
 * @param {() => T} make
 * @returns {Computed<T>}
 */
export function computed(make) {
  /** @type {T | undefined} */
  let held;
  let fresh = false;
  /** @type {Read} */
  const read = { readers: new Set() };
  /** @type {Reader} */
  const reader = {
    order: 0,
    sources: new Set(),
    stale: () => {
      if (!fresh) return;
      fresh = false;
      tellReaders(read);
    },
  };
  function current() {
    if (!fresh) {
      held = reading(reader, make);
      fresh = true;
    }
    return /** @type {T} */ (held);
  }
  return {
    get value() {
      noteRead(read);
      return current();
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
  /** @type {void | (() => void)} */
  let cleanup;
  /** @type {Reader} */
  const reader = {
    order: madeEffects++,
    sources: new Set(),
    stale: () => waitingEffects.set(reader, again),
  };
  function again() {
    if (ended) return;
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
    waitingEffects.delete(reader);
    if (cleanup) untracked(cleanup);
    cleanup = undefined;
  }
  again();
  return stop;
}

/**
 * Changes several signals; effects run once, after all of them.
 * @template T
 * @param {() => T} change
 * @returns {T}
 */
export function batch(change) {
  batchDepth++;
  try {
    return change();
  } finally {
    if (batchDepth === 1) runWaitingEffects();
    batchDepth--;
  }
}

/**
 * Reads without becoming a reader of what is read.
 * @template T
 * @param {() => T} run
 * @returns {T}
 */
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
    const now = [...waitingEffects].sort(([a], [b]) => a.order - b.order);
    waitingEffects.clear();
    for (const [, again] of now) {
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

/**
 * @template T
 * @param {Reader} reader
 * @param {() => T} run
 * @returns {T}
 */
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
  currentReader.sources.add(read);
}

/** @param {Read} read */
function tellReaders(read) {
  for (const reader of [...read.readers]) reader.stale();
}

/** @param {Reader} reader */
function forgetSources(reader) {
  for (const source of reader.sources) source.readers.delete(reader);
  reader.sources.clear();
}
