/**
 * What stands for a message in a request: whether it is in view, and what took it out if not.
 *
 * The words are those of `eventctx why`. A message that is not in view was taken out by the last
 * change to it; without one it is a result that answers no call in view, and was left out for that.
 */

/** The standings in the order of their codes. */
export const STANDINGS = Object.freeze([
  'whole',
  'shortened',
  'summarised',
  'dropped',
  'merged',
  'omitted',
  'replaced',
  'set',
  'cleared',
  'not_added',
]);

export const IN_VIEW_BELOW = 2;
export const STANDING_WHOLE = 0;
export const STANDING_SHORTENED = 1;
export const STANDING_OMITTED = STANDINGS.indexOf('omitted');
export const STANDING_NOT_ADDED = STANDINGS.indexOf('not_added');

/** Of a change that says nothing of a message out of view. */
export const UNCHANGED = 255;

/** Kinds of change in the order of their codes. */
export const CHANGE_KINDS = Object.freeze([
  'shortened',
  'thinking_left_out',
  'summarised',
  'dropped',
  'merged',
  'replaced',
  'restored',
  'set',
  'cleared',
  'pinned',
  'unpinned',
  'erased',
]);

/** After such a change nothing may be shown that was asked for before it. */
export const ERASED = CHANGE_KINDS.indexOf('erased');

/**
 * The standing that a kind of change leaves a message with while it is out of view. Who was restored
 * and still is not there was left out as a result without its call.
 */
export const STANDING_AFTER = CHANGE_KINDS.map((kind) => {
  if (kind === 'restored') return STANDING_OMITTED;
  const standing = STANDINGS.indexOf(kind);
  return standing >= IN_VIEW_BELOW ? standing : UNCHANGED;
});
