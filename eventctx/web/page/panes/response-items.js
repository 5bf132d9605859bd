// The items of OpenAI's Responses API, as far as showing them needs it: what each is, and where its
// content stands. The same table as eventctx/messages/response_items.py; a test compares the two.

/** @typedef {'call'|'result'|'thinking'|'hosted'|'other'} ItemSort */

/** @type {Record<string, [ItemSort, string[]]>} */
const ITEM_TABLE = {
  function_call: ['call', ['arguments']],
  custom_tool_call: ['call', ['input']],
  local_shell_call: ['call', ['action']],
  shell_call: ['call', ['action']],
  apply_patch_call: ['call', ['operation']],
  computer_call: ['call', ['actions', 'action']],
  tool_search_call: ['call', ['arguments']],
  mcp_approval_request: ['call', ['arguments']],
  function_call_output: ['result', ['output']],
  custom_tool_call_output: ['result', ['output']],
  local_shell_call_output: ['result', ['output']],
  shell_call_output: ['result', ['output']],
  apply_patch_call_output: ['result', ['output']],
  computer_call_output: ['result', ['output']],
  tool_search_output: ['result', ['tools']],
  tool_search_call_output: ['result', ['output']],
  mcp_approval_response: ['result', []],
  reasoning: ['thinking', []],
  compaction: ['thinking', []],
  web_search_call: ['hosted', []],
  file_search_call: ['hosted', []],
  code_interpreter_call: ['hosted', []],
  image_generation_call: ['hosted', []],
  mcp_call: ['hosted', []],
  mcp_list_tools: ['other', []],
  program: ['other', []],
  program_output: ['other', []],
  configuration_update: ['other', []],
  compaction_trigger: ['other', []],
};

const REFERENCE_ITEM = 'item_reference';

// The provider writes these two by itself, one after the other, without a `call_id`.
const ITEMS_BY_SERVER = ['tool_search_call', 'tool_search_output'];

// The `id` of these outputs is their call's; that of all others is their own.
const ITEMS_WITH_CALLS_ID = ['local_shell_call_output', 'tool_search_call_output'];

/**
 * Whether a message is an item: a type and no role, or a reference, which may lack both.
 * @param {Record<string, any>} message
 */
export function isItem(message) {
  if (message.role !== undefined && message.role !== null) return false;
  if (typeof message.type === 'string') return true;
  const bare = Object.keys(message).every((key) => key === 'id' || key === 'type');
  return bare && (message.type ?? null) === null && typeof message.id === 'string';
}

/** The type of an item; a reference may leave it out. @param {Record<string, any>} message */
export function itemType(message) {
  return typeof message.type === 'string' ? message.type : REFERENCE_ITEM;
}

/**
 * What an item is: by the table, else by its name and whether it has a `call_id`.
 * @param {Record<string, any>} message
 * @returns {[ItemSort, string[]]}
 */
export function describeItem(message) {
  const type = itemType(message);
  const paired = typeof message.call_id === 'string';
  if (Object.hasOwn(ITEM_TABLE, type)) {
    return ITEMS_BY_SERVER.includes(type) && !paired ? ['other', []] : ITEM_TABLE[type];
  }
  if (type === REFERENCE_ITEM) return ['other', []];
  if (paired) return [/_(output|response|result)$/.test(type) ? 'result' : 'call', []];
  return [type.endsWith('_call') ? 'hosted' : 'other', []];
}

/**
 * The id that a call and its answer share; null where there is none.
 * @param {Record<string, any>} message
 * @returns {string|null}
 */
export function sharedItemId(message) {
  const type = itemType(message);
  let shared = message[type === 'mcp_approval_response' ? 'approval_request_id' : 'call_id'];
  const [sort] = describeItem(message);
  if (!shared && (sort !== 'result' || ITEMS_WITH_CALLS_ID.includes(type))) shared = message.id;
  return typeof shared === 'string' ? shared : null;
}

/** Whether a typed output says that its command or patch failed. @param {Record<string, any>} message */
export function itemHasFailed(message) {
  if (message.type === 'apply_patch_call_output') return message.status === 'failed';
  if (message.type !== 'shell_call_output' || !Array.isArray(message.output)) return false;
  return message.output.some((chunk) => {
    const outcome = chunk?.outcome;
    if (outcome === null || typeof outcome !== 'object') return false;
    return outcome.type === 'timeout' || Boolean(outcome.exit_code);
  });
}
