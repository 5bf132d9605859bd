/**
 * Where the page reads from: the server, or the file that the page is itself.
 *
 * Each source says what it can; a question that a file cannot answer is not offered.
 */

/** @import { Timeline } from '../timeline/timeline.js' */

/** A row of `eventctx sessions --json`. @typedef {Record<string, any> & {session: string}} SessionRow */

/** How many sessions are summed up for the list, and how many are older than it.
 * @typedef {{read: number, sessions: number, older: number}} Listing
 */

/** The best hits, as `eventctx search --json` has them, of `total` messages that match.
 * @typedef {{found: Record<string, any>[], total: number}} Found
 */

/** What messages must be besides their words, as the server's parameters have it; null asks for nothing.
 * @typedef {{role: string | null, tool: string | null, errors: string | null, since: string | null, until: string | null}} MessageFilter
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

/** @typedef {{version: string, reveal: boolean, live: boolean, store: string, option: string | null, writable: boolean,
 * policies: string[]}} About */

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
 *   listed(): Promise<Listing>,
 *   lost(): Promise<Record<string, number>>,
 *   timeline(name: string): Promise<Timeline>,
 *   follow(timeline: Timeline, onState: (state: FollowState) => void): () => void,
 *   bodies(name: string, addresses: BodyAddress[]): Promise<StoredMessage[]>,
 *   demands(name: string, addresses: BodyAddress[]): Promise<string[][]>,
 *   rendered(name: string, addresses: BodyAddress[]): Promise<RenderedTexts[]>,
 *   answer(name: string, question: string, parameters?: Record<string, unknown>): Promise<any>,
 *   search(query: string, session: string | null, only: MessageFilter | null): Promise<Found>,
 *   digests(name: string): Promise<string[]>,
 * }} Source
 */

/** How many bodies are asked for at once: the server answers no more. */
export const MOST_BODIES = 64;
