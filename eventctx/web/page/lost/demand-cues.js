// The words that make a sentence a demand; as in `eventctx/messages/demands.py`, which explains them.

/** Beginnings of a command that matters most. */
const STRONG_CUES = [
  'never', 'always', "don't", 'dont', 'do not', 'ensure', 'avoid', 'refrain', 'make sure',
  'be sure', 'make certain', 'do only', 'under no circumstances', 'at all times',
];

/** Beginnings of a command that lasts by its meaning. */
const KEEPING_CUES = [
  'use', 'keep', 'prefer', 'remember', 'leave', 'follow', 'respect', 'preserve', 'limit',
  'restrict', 'ignore', 'skip', 'exclude', 'include', 'reply', 'respond', 'treat', 'stay',
  'adhere', 'maintain', 'stick to', 'wait for', 'wait until', 'ask me', 'ask before',
  'answer in', 'answer with', 'write in', 'stop using', 'stop doing', 'at most', 'at least',
  'no more', 'no longer', 'stop at',
];

/** Verbs of a command that lasts only with one of LASTING_CUES, or after a condition. */
const ACTING_CUES = [
  'add', 'address', 'answer', 'append', 'apply', 'ask', 'back', 'begin', 'build', 'bump',
  'call', 'change', 'check', 'cite', 'clean', 'commit', 'compare', 'convert', 'copy', 'create',
  'cut', 'delete', 'deploy', 'do', 'document', 'draft', 'drop', 'edit', 'end', 'explain',
  'extract', 'find', 'finish', 'fix', 'format', 'generate', 'get', 'give', 'handle',
  'implement', 'improve', 'install', 'list', 'log', 'make', 'mark', 'merge', 'migrate', 'move',
  'name', 'open', 'pick', 'place', 'port', 'print', 'provide', 'push', 'put', 'quote', 'read',
  'rebase', 'recommend', 'record', 'refactor', 'release', 'remove', 'rename', 'repeat',
  'replace', 'report', 'restate', 'restore', 'return', 'revert', 'review', 'rewrite', 'run',
  'save', 'search', 'send', 'set', 'show', 'sort', 'speak', 'split', 'squash', 'start', 'state',
  'stop', 'store', 'summarise', 'summarize', 'switch', 'take', 'tell', 'test', 'translate',
  'turn', 'update', 'validate', 'verify', 'wait', 'wrap', 'write',
];

/** Words that make a command last. */
const LASTING_CUES = [
  'every', 'each', 'any', 'always', 'never', 'only', 'whenever', 'when', 'before', 'after',
  'once', 'until', 'unless', 'without', 'instead', 'exactly', "don't", 'rather than', 'at most',
  'at least', 'as long as',
];

/** Beginnings of the condition before a command. */
const CONDITIONS_CUES = [
  'once', 'when', 'whenever', 'before', 'after', 'if', 'unless', 'while', 'until',
];

/** What obliges. */
const OBLIGING_CUES = [
  'must', "mustn't", 'shall', 'should', "shouldn't", 'needs to', 'need to', 'has to', 'have to',
  'not allowed', 'no exceptions', 'off limits', 'is forbidden', 'are forbidden', 'is required',
  'are required', 'is mandatory', "you can't", 'you cannot', 'you may not', 'you may only',
  'you never', 'you always', 'we never', 'we always', "we don't", 'we dont', 'important to',
  'important not to', "we won't", 'will never', 'can only', 'no matter', 'from now on',
  'under no circumstances',
];

/** What wishes. */
const WISHING_CUES = [
  "let's", 'i want', "i'd like", 'i would like', 'i need you to', 'i prefer', "i'd prefer",
  "i'd rather", 'i only want', "i don't want", 'i do not want', 'we want', "we don't want",
  'i really want', 'i actually want', 'i basically want', 'i just want',
];

/** Words of a report or a doubt. */
const DOUBTS_CUES = [
  'guess', 'maybe', 'perhaps', 'probably', 'wondering', 'seems', 'assume', 'suppose', 'wonder',
  'possibly', "must've", "should've", 'i think', 'not sure', 'must have', 'should have',
  'i thought', 'i have to', 'i need to', 'i must', 'i should', 'they have to', "we don't know",
  "we don't see", 'why', 'how', 'what', 'whether', 'if i want', 'if we want',
];

/** Cues of other languages, anywhere in a sentence. */
const OTHER_WORDS_CUES = [
  'niemals', 'nie', 'stets', 'immer', 'muss', 'musst', 'müssen', 'müsst', 'soll', 'sollst',
  'sollen', 'sollt', 'sollte', 'sollten', 'keinesfalls', 'verboten', 'bitte', 'verwende',
  'verwenden', 'benutze', 'benutzt', 'nutze', 'vermeide', 'vermeidet', 'beachte', 'unbedingt',
  'ausschließlich', 'auf keinen fall', 'darf nicht', 'darfst nicht', 'dürfen nicht', 'darf nur',
  'stelle sicher', 'stell sicher', 'achte darauf', 'jamais', 'toujours', 'doit', 'dois',
  'doivent', 'devez', 'évite', 'évitez', 'utilise', 'utilisez', 'veuillez', 'interdit',
  'assure-toi', 'assurez-vous', "n'oublie", "n'oubliez", 'impérativement', 'il faut', 'je veux',
  'ne pas', 'nunca', 'siempre', 'jamás', 'debe', 'debes', 'deben', 'debería', 'deberías',
  'evita', 'evite', 'asegúrate', 'asegúrese', 'prohibido', 'utiliza', 'utilice', 'hay que',
  'tienes que', 'por favor', 'quiero que', 'sempre', 'deve', 'deves', 'devem', 'deveria',
  'certifique-se', 'proibido', 'utilize', 'mantenha', 'mantén', 'garanta', 'tem que', 'devi',
  'dovete', 'devono', 'dovrebbe', 'assicurati', 'vietato', 'evitate', 'utilizza', 'bisogna',
  'per favore', 'voglio che', 'nigdy', 'zawsze', 'musi', 'musisz', 'muszą', 'musicie', 'należy',
  'powinien', 'powinna', 'powinno', 'powinny', 'unikaj', 'unikajcie', 'używaj', 'używajcie',
  'upewnij', 'proszę', 'koniecznie', 'nie wolno', 'никогда', 'всегда', 'должен', 'должна',
  'должно', 'должны', 'нельзя', 'нужно', 'надо', 'следует', 'обязательно', 'запрещено',
  'избегай', 'избегайте', 'используй', 'используйте', 'пожалуйста', 'ни в коем случае',
];

/** Imperatives of other languages, at the beginning of a clause. */
const OTHER_COMMANDS_CUES = [
  'ändere', 'lösche', 'fass', 'berühre', 'schreib', 'schreibe', 'füge', 'entferne', 'lass',
  'halte', 'behalte', 'antworte', 'denk', 'denke', 'führe', 'teste', 'prüfe', 'garde', 'gardez',
  'réponds', 'répondez', 'écris', 'écrivez', 'respecte', 'respectez', 'laisse', 'laissez',
  'usa', 'responde', 'escribe', 'respeta', 'mantieni', 'rispondi', 'scrivi', 'rispetta',
  'responda', 'escreva', 'zachowaj', 'pisz', 'odpowiadaj', 'pamiętaj', 'пиши', 'пишите',
  'отвечай', 'отвечайте', 'сохраняй', 'сохраняйте', 'оставь', 'оставьте',
];

/** Prohibitives of other languages, as expressions. */
const OTHERS_FORBID_CUES = [
  'ne [^ ]+ (?:pas|jamais|rien|plus)', "n'[^ ]+ (?:pas|jamais|rien|plus)", 'não [^ ]+',
  'non [^ ]+[aei]re', 'no [^ ]+(?:es|as|en|an) (?:el|la|los|las|un|una|en|ese|esta|este|nada)',
  'nie [^ ]+(?:[jb]|cie)', 'не [^ ]+(?:й|йте|ь|ьте)', 'non [^,]*mai', 'mai [^ ]+[aei]re',
];

/** Words before the verb of a command. */
const LEADS_CUES = [
  'and', 'but', 'then', 'so', 'also', 'please', 'ok', 'okay', 'yes', 'yeah', 'no', 'now',
  'just', 'instead', 'kindly', 'actually', 'alright', 'again', 'first', 'finally', 'next', 'oh',
  'hey', 'thanks', 'well', 'only',
];

/** Words after a "no" that forbids nothing. */
const NO_CUES = [
  'it', 'that', 'this', 'i', 'you', 'we', 'they', 'he', 'worries', 'need', 'problem', 'idea',
  'way', 'one', 'on', 'wonder', 'doubt', 'there', 'what', 'not', 'longer', 'the',
];

/** Cues of scripts in which words are not apart. */
const WIDE_CUES = [
  '不要', '不得', '不可', '不许', '不許', '不准', '不能', '禁止', '必须', '必須', '务必', '務必', '应该', '應該', '应当',
  '應當', '始终', '始終', '总是', '總是', '永远', '永遠', '绝不', '絕不', '千万', '千萬', '切勿', '请勿', '請勿', '只能',
  '只用', '避免', '严禁', '嚴禁', '别再', '别动', '别碰', '别用', '别改', '别删', '請始', '请用', '請用', '请使用', '請使用',
  '请保持', '請保持', 'ないで', 'てください', 'て下さい', 'でください', '必ず', '絶対', 'しないこと', 'べき', 'なければ', 'てはいけ',
  'ではいけ', 'てはなら', 'ではなら', '決して', '常に', '避けて', '마세요', '마십시오', '말아', '지 마', '반드시', '절대', '항상',
  '해야', '금지', '하세요', '주세요', '십시오', '않도록', 'कभी', 'हमेशा', 'चाहिए', 'ज़रूर', 'जरूर', ' मत ',
  'कृपया', 'अनिवार्य', 'करना होगा', 'न करें',
];

/** @param {string[]} cues */
const anyCue = (cues) => ` (?:${cues.join('|')}) `;

const LEADING = `(?: (?:${LEADS_CUES.join('|')})){0,4}`;
const COMMAND = `(?:^| [,:]| but| then)${LEADING}`;
const REPORTING = '(?:is|are|was|were|has|have|had|did|does|found|made) ';
const FORBIDDING =
  `^${LEADING} no (?!(?:${NO_CUES.join('|')}) )(?:(?!${REPORTING})[^ ,]+ ){1,8}$`;
const IS_STRONG = new RegExp(
  `(?:^| [,:]| but| then| and| or)${LEADING}${anyCue(STRONG_CUES)}` +
  "|(?<! to) make sure | must | mustn't | you never | you always | we never | we always " +
  `|${FORBIDDING}|${COMMAND}${anyCue(OTHERS_FORBID_CUES)}`, 'u');
const IS_COMMAND = new RegExp(
  `${COMMAND}${anyCue([...KEEPING_CUES, ...OTHER_COMMANDS_CUES])}` +
  `|${anyCue([...WISHING_CUES, ...OTHER_WORDS_CUES])}` +
  `|(?:^| [,:])${LEADING}${anyCue(CONDITIONS_CUES)}[^,]*(?:,[^,]*)?, ` +
  anyCue(ACTING_CUES).slice(1), 'u');
const IS_OBLIGING = new RegExp(anyCue(OBLIGING_CUES), 'u');
const IS_DOUBT = new RegExp(anyCue(DOUBTS_CUES), 'u');
const ACTS = new RegExp(`(?:^| :)${LEADING}${anyCue(ACTING_CUES)}`, 'u');
const LASTS = new RegExp(anyCue(LASTING_CUES), 'u');
const ASKS = new RegExp(
  `^${LEADING} (?:why|what|what's|how|who|where|which` +
  '|(?:do|does|did|is|are|can|could|would|will|should|shall|have|has|am|was|were)' +
  ' (?:we|i|you|they|it|there|this|that|he|she|the)) ', 'u');
const IS_WIDE = new RegExp(WIDE_CUES.join('|'), 'u');

/**
 * Whether words with blanks around them hold a strong cue; null if they hold none at all.
 *
 * @param {string} spoken
 * @returns {boolean | null}
 */
export function strengthOf(spoken) {
  if (ASKS.test(spoken)) return null;
  if (IS_WIDE.test(spoken)) return true;
  const doubts = IS_DOUBT.test(spoken);
  if (IS_STRONG.test(spoken) && !doubts) return true;
  if (IS_COMMAND.test(spoken) || (!doubts && IS_OBLIGING.test(spoken))) return false;
  return ACTS.test(spoken) && LASTS.test(spoken) ? false : null;
}
