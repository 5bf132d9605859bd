/**
 * Follows a session that grows, without a gap.
 *
 * The server sends documents that go on from the last one; an event's id is the position of its
 * document's head. A browser whose connection breaks asks again by itself and names the last id it
 * got. Where it gives up (the server refused, or was gone for long), a new stream is opened after
 * the timeline's own head. A document that does not go on from there is never taken.
 *
 * Three things make all that a page holds outdated, texts included: messages were erased, the session
 * or its store was deleted, or another log is served under its name. The timeline then grows no more.
 */

import { ERASED } from '../timeline/standing.js';

/** @import { Timeline } from '../timeline/timeline.js' */
/** @import { TimelineDocument } from '../timeline/packing.js' */
/** @import { FollowState } from './source.js' */

const FIRST_WAIT_MS = 500;
/** The server is on this machine: it is asked often, and it costs nothing. */
const LONGEST_WAIT_MS = 4_000;
/** The server's words for a position, a session or a store that it does not have any more. */
const NOT_THERE = [400, 404, 410];

/** @typedef {Pick<EventSource, 'addEventListener' | 'close' | 'readyState'>} EventStream */

/**
 * @typedef {{
 *   open(after: number): EventStream,
 *   since(after: number): Promise<TimelineDocument>,
 *   later(run: () => void, milliseconds: number): () => void,
 * }} FollowPort `open` begins a stream after a position, `since` asks once for what came after it,
 *   `later` runs once after some time and returns what calls it off
 */

/**
 * @param {Timeline} timeline
 * @param {FollowPort} port
 * @param {(state: FollowState) => void} onState
 * @returns {() => void} stops
 */
export function followTimeline(timeline, port, onState) {
  const follower = new Follower(timeline, port, onState);
  follower.open();
  return () => follower.stop();
}

class Follower {
  /** @param {Timeline} timeline @param {FollowPort} port @param {(state: FollowState) => void} onState */
  constructor(timeline, port, onState) {
    this.timeline = timeline;
    this.port = port;
    this.onState = onState;
    this.stopped = false;
    this.wait = FIRST_WAIT_MS;
    this.catching = false;
    /** @type {EventStream | null} */
    this.stream = null;
    this.callOff = () => {};
  }

  open() {
    const stream = this.port.open(this.timeline.head);
    this.stream = stream;
    stream.addEventListener('open', () => {
      this.wait = FIRST_WAIT_MS;
      this.tell('open');
    });
    stream.addEventListener('timeline', (event) => {
      this.take(JSON.parse(/** @type {MessageEvent} */ (event).data));
    });
    stream.addEventListener('trouble', () => void this.troubled(stream));
    stream.addEventListener('error', () => {
      if (stream !== this.stream) return;
      this.tell('lost');
      // The browser tries again by itself unless the stream is closed.
      if (stream.readyState !== 2) return;
      void this.askWhy();
      this.reopen(stream, this.wait);
    });
  }

  /** The session was deleted, or cannot be read: following it again would not help. @param {EventStream} stream */
  async troubled(stream) {
    stream.close();
    this.stream = null;
    await this.askWhy();
    this.tell('ended');
    this.stop();
  }

  /** Opens another stream in place of one. @param {EventStream} stream @param {number} wait */
  reopen(stream, wait) {
    stream.close();
    if (this.stopped || stream !== this.stream) return;
    this.stream = null;
    this.callOff = this.port.later(() => this.open(), wait);
    if (wait > 0) this.wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }

  /** @param {TimelineDocument} document */
  take(document) {
    if (this.stopped || this.catching) return;
    const { head } = this.timeline;
    if (document.after === head) this.grow(document);
    // Sent twice, as after a broken connection, it holds nothing new.
    else if (document.head > head) void this.catchUp();
  }

  /** @param {TimelineDocument} document that goes on from the timeline's head */
  grow(document) {
    const goesOn = document.after_digest === this.timeline.digest;
    if (!goesOn || document.changes.what.includes(ERASED)) this.end();
    else this.timeline.append(document);
  }

  /** Finds out whether the server refused because it does not have what this page shows. */
  async askWhy() {
    try {
      const missing = await this.port.since(this.timeline.head);
      if (missing.after_digest !== this.timeline.digest) this.end();
    } catch (error) {
      if (NOT_THERE.includes(/** @type {any} */ (error).status)) this.end();
    }
  }

  end() {
    this.tell('outdated');
    this.stop();
  }

  /** Asks for what is missing; what the stream sends meanwhile is in the answer, or comes again. */
  async catchUp() {
    this.catching = true;
    try {
      const missing = await this.port.since(this.timeline.head);
      if (!this.stopped && missing.after === this.timeline.head) this.grow(missing);
      this.catching = false;
    } catch {
      this.catching = false;
      this.tell('lost');
    }
    // What came meanwhile was not taken: a stream after the new head sends it.
    if (this.stream) this.reopen(this.stream, 0);
  }

  /** @param {FollowState} state */
  tell(state) {
    if (!this.stopped) this.onState(state);
  }

  stop() {
    this.stopped = true;
    this.callOff();
    this.stream?.close();
    this.stream = null;
  }
}
