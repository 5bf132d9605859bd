// The parts of a message's content: its blocks, read by their type. Readers are looked up in a map,
// never in an object, so that a type named like one of an object's own keys finds nothing.

/**
 * @typedef {'text'|'thinking'|'refusal'|'image'|'document'|'call'|'result'|'hosted'|'other'} PartKind
 * @typedef {object} MessagePart
 * @property {PartKind} kind
 * @property {(string|number)[]} place keys that lead from the message to the value
 * @property {any} value
 * @property {string} type the block's own type, '' where it has none
 * @property {string[]} ids of the call, or of the calls that a result answers
 * @property {string|null} name the tool's
 * @property {boolean} failed whether a result is an error
 * @typedef {(type: string, block: Record<string, any>, place: (string|number)[]) => MessagePart|null} BlockReader
 */

/** @param {any[]} blocks @param {(string|number)[]} place @param {Map<any, BlockReader>} readers */
export function readBlocks(blocks, place, readers) {
  /** @type {MessagePart[]} */
  const found = [];
  blocks.forEach((block, index) => {
    const at = [...place, index];
    if (isJsonObject(block)) {
      const type = block.type;
      if (typeof type !== 'string') found.push(partOf('other', at, block));
      else {
        const reader = readers.get(type) ?? (readers === BLOCK_READERS ? hostedOrOther : null);
        const part = (reader ?? wholeBlock('other'))(type, block, at);
        if (part !== null) found.push(part);
      }
    } else if (block !== null) {
      found.push(bareValue(block, at));
    }
  });
  return found;
}

/** A reader of blocks that are a part as a whole. @param {PartKind} kind @returns {BlockReader} */
export function wholeBlock(kind) {
  return (type, block, place) => partOf(kind, place, block, type);
}

/**
 * A reader of blocks with a text under one of `keys`.
 * @param {PartKind} kind
 * @param {...string} keys
 * @returns {BlockReader}
 */
function wordedBlock(kind, ...keys) {
  return (type, block, place) => {
    const key = keys.find((one) => one in block) ?? keys[0];
    const text = block[key];
    if (typeof text === 'string') return partOf(kind, [...place, key], text, type);
    // A signed block without text is a part, too.
    if (kind === 'thinking') return partOf(kind, [...place, key], '', type);
    return text === null || text === undefined ? null : partOf('other', place, block, type);
  };
}

/** @type {BlockReader} */
function callBlock(type, block, place) {
  const key = !('input' in block) && 'arguments' in block ? 'arguments' : 'input';
  return callPart(block, [...place, key], type, block.id, block.name);
}

/** @type {BlockReader} */
function resultBlock(type, block, place) {
  const key = 'content' in block ? 'content' : 'output';
  const id = 'tool_use_id' in block ? block.tool_use_id : block.tool_call_id;
  const part = partOf('result', [...place, key], block[key], type);
  return { ...part, ids: typeof id === 'string' ? [id] : [], failed: block.is_error === true };
}

/** @type {BlockReader} */
function hostedOrOther(type, block, place) {
  // For example server_tool_use, mcp_tool_use, web_search_tool_result.
  if (!/_tool_(use|result)$/.test(type)) return partOf('other', place, block, type);
  const id = 'id' in block ? block.id : block.tool_use_id;
  const ids = typeof id === 'string' ? [id] : [];
  return { ...partOf('hosted', place, block, type), ids, name: textOr(block.name) };
}

/** @type {Map<any, BlockReader>} */
export const INNER_READERS = new Map([
  ...['text', 'input_text', 'output_text'].map(entryFor(wordedBlock('text', 'text'))),
  ...['image', 'image_url', 'input_image'].map(entryFor(wholeBlock('image'))),
  ...['tool_result'].map(entryFor(resultBlock)),
]);

const DOCUMENT_TYPES = ['document', 'file', 'input_file', 'input_audio', 'audio'];

/** @type {Map<any, BlockReader>} */
export const BLOCK_READERS = new Map([
  ...INNER_READERS,
  ...DOCUMENT_TYPES.map(entryFor(wholeBlock('document'))),
  ...['thinking', 'reasoning'].map(entryFor(wordedBlock('thinking', 'thinking', 'text'))),
  ...['redacted_thinking'].map(entryFor(wordedBlock('thinking', 'data'))),
  ...['refusal'].map(entryFor(wordedBlock('refusal', 'refusal', 'text'))),
  ...['tool_use', 'tool_call'].map(entryFor(callBlock)),
]);

/** @param {BlockReader} reader @returns {(type: string) => [string, BlockReader]} */
function entryFor(reader) {
  return (type) => [type, reader];
}

// -- values --------------------------------------------------------------------------------------

/**
 * @param {PartKind} kind
 * @param {(string|number)[]} place
 * @param {any} value
 * @param {string} [type]
 * @returns {MessagePart}
 */
export function partOf(kind, place, value, type = '') {
  return { kind, place, value, type, ids: [], name: null, failed: false };
}

/**
 * @param {Record<string, any>} holder
 * @param {(string|number)[]} place
 * @param {string} type
 * @param {any} id
 * @param {any} name
 * @returns {MessagePart}
 */
export function callPart(holder, place, type, id, name) {
  const part = partOf('call', place, holder[/** @type {string} */ (place.at(-1))] ?? null, type);
  part.ids = [typeof id === 'string' ? id : `function:${name ?? 'None'}`];
  part.name = textOr(name);
  return part;
}

/** A value without a type: a text, or `other`. @param {any} value @param {(string|number)[]} place */
export function bareValue(value, place) {
  return partOf(typeof value === 'string' ? 'text' : 'other', place, value);
}

/** @param {any} value @returns {value is Record<string, any>} */
export function isJsonObject(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

/** @param {any} value @returns {string|null} */
export function textOr(value) {
  return typeof value === 'string' ? value : null;
}
