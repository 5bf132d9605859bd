/**
 * Where the page reads from: the server, or the file that the page is itself.
 *
 * Each source says what it can; a question that a file cannot answer is not offered.
 */

/** @import { Timeline } from '../timeline/timeline.js' */

/** A row of `eventctx sessions --json`. @typedef {Record<string, any> & {session: string}} SessionRow */

/** Tokens of a session's requests, at most 40 of them, and how many messages of a person are out
 * of view at its end.
 * @typedef {{totals: number[], lost: number}} Sparkline
 */

/** The place of a body: a record's position, and the body's index in it.
 * @typedef {{position: number, index: number}} BodyAddress
 */

/** A message as it is stored, in its own dialect; null where it was erased.
 * @typedef {Record<string, any> | null} StoredMessage
 */

/** The texts of a message that have markup: the place of each in the message, and its tree.
 * @typedef {[place: (string | number)[], tree: any[]][] | null} RenderedTexts
 */

/** @typedef {{version: string, reveal: boolean, live: boolean, store: string, option: string | null, writable: boolean}} About */

/** How a live session is followed; `outdated`: nothing that the page holds of it may be shown any more.
 * @typedef {'open' | 'lost' | 'ended' | 'outdated'} FollowState
 */

/**
 * `answers`: every question of the command line; `live`: sessions grow; `search`: over all texts.
 * @typedef {{answers: boolean, live: boolean, search: boolean}} Abilities
 */

/**
 * All that is asked throws an Error with a message for a person.
 * @typedef {{
 *   can: Abilities,
 *   about(): Promise<About>,
 *   sessions(): Promise<SessionRow[]>,
 *   older(): Promise<number>,
 *   sparklines(): Promise<Record<string, Sparkline>>,
 *   timeline(name: string): Promise<Timeline>,
 *   follow(timeline: Timeline, onState: (state: FollowState) => void): () => void,
 *   bodies(name: string, addresses: BodyAddress[]): Promise<StoredMessage[]>,
 *   rendered(name: string, addresses: BodyAddress[]): Promise<RenderedTexts[]>,
 *   answer(name: string, question: string, parameters?: Record<string, unknown>): Promise<any>,
 *   search(query: string, session?: string | null): Promise<any>,
 *   digests(name: string): Promise<string[]>,
 * }} Source
 */

/** How many bodies are asked for at once: the server answers no more. */
export const MOST_BODIES = 64;
