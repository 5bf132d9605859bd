"""Demands: sentences of a person that ask for or forbid something, such as "Never touch main.py".

They are what a compaction must not lose: in a published experiment agents broke a rule in 38 % of
the runs where a compaction had dropped it, and in none where it was kept
(https://arxiv.org/abs/2606.22528).

The form alone makes a demand: a sentence of 3 to 60 words that commands (a verb at the beginning
of a clause), obliges ("must", "needs to") or wishes ("I want"). Questions, quotes, logs, code and
pasted blocks hold none, nor does a request for an answer ("Please explain it."), unless a word
makes it last ("every", "when"). A sentence never crosses a line, so every demand is in its text
word for word. A harness's text is nobody's demand, wherever in a message it is.

The lists of other languages are closed classes: modal verbs, "never" and "always", the marks of
the imperative and the prohibitive (World Atlas of Language Structures, https://wals.info, chapters
70, 71 and 75), and the imperatives of "use", "avoid", "keep" and their like.
"""

from __future__ import annotations

from typing import Any, Final

from eventctx.messages.parts import read_parts
from eventctx.messages.pasted import pasted_spans
from eventctx.messages.speaker import persons_part, without_elements
from eventctx.text import pattern

LEAST_WORDS: Final = 3
MOST_WORDS: Final = 60
LEAST_WIDE: Final = 5
"""Characters of a demand in Chinese, Japanese or Korean."""

MOST_DEMANDS: Final = 12
"""Demands of one message. Of more, those with a strong cue are taken, the first ones first."""

MOST_CHARACTERS: Final = 100_000
"""Characters of a text that are read: what a person pastes beyond that is no list of demands."""

STRONG: Final = (
    *("never", "always", "don't", "dont", "do not", "ensure", "avoid", "refrain", "make sure"),
    *("be sure", "make certain", "do only", "under no circumstances", "at all times"),
)
"""Beginnings of a command that matters most."""

KEEPING: Final = (
    *("use", "keep", "prefer", "remember", "leave", "follow", "respect", "preserve", "limit"),
    *("restrict", "ignore", "skip", "exclude", "include", "reply", "respond", "treat", "stay"),
    *("adhere", "maintain", "stick to", "wait for", "wait until", "ask me", "ask before"),
    *("answer in", "answer with", "write in", "stop using", "stop doing", "at most", "at least"),
    *("no more", "no longer", "stop at"),
)
"""Beginnings of a command that lasts by its meaning."""

ACTING: Final = (
    *("add", "address", "answer", "append", "apply", "ask", "back", "begin", "build", "bump"),
    *("call", "change", "check", "cite", "clean", "commit", "compare", "convert", "copy"),
    *("create", "cut", "delete", "deploy", "do", "document", "draft", "drop", "edit", "end"),
    *("explain", "extract", "find", "finish", "fix", "format", "generate", "get", "give"),
    *("handle", "implement", "improve", "install", "list", "log", "make", "mark", "merge"),
    *("migrate", "move", "name", "open", "pick", "place", "port", "print", "provide", "push"),
    *("put", "quote", "read", "rebase", "recommend", "record", "refactor", "release", "remove"),
    *("rename", "repeat", "replace", "report", "restate", "restore", "return", "revert"),
    *("review", "rewrite", "run", "save", "search", "send", "set", "show", "sort", "speak"),
    *("split", "squash", "start", "state", "stop", "store", "summarise", "summarize", "switch"),
    *("take", "tell", "test", "translate", "turn", "update", "validate", "verify", "wait"),
    *("wrap", "write"),
)
"""Verbs of a command that lasts only with one of ``LASTING``, or after one of ``CONDITIONS``."""

LASTING: Final = (
    *("every", "each", "any", "always", "never", "only", "whenever", "when", "before", "after"),
    *("once", "until", "unless", "without", "instead", "exactly", "don't"),
    *("rather than", "at most", "at least", "as long as"),
)

CONDITIONS: Final = (
    "once",
    "when",
    "whenever",
    "before",
    "after",
    "if",
    "unless",
    "while",
    "until",
)
"""Beginnings of the condition before a command: "Once done, clean up"."""

OBLIGING: Final = (
    *("must", "mustn't", "shall", "should", "shouldn't", "needs to", "need to", "has to"),
    *("have to", "not allowed", "no exceptions", "off limits", "is forbidden", "are forbidden"),
    *("is required", "are required", "is mandatory", "you can't", "you cannot", "you may not"),
    *("you may only", "you never", "you always", "we never", "we always", "we don't", "we dont"),
    *(
        "important to",
        "important not to",
        "we won't",
        "will never",
        "can only",
        "no matter",
        "from now on",
        "under no circumstances",
    ),
)
WISHING: Final = (
    *("let's", "i want", "i'd like", "i would like", "i need you to", "i prefer", "i'd prefer"),
    *("i'd rather", "i only want", "i don't want", "i do not want", "we want", "we don't want"),
    *("i really want", "i actually want", "i basically want", "i just want"),
)

DOUBTS: Final = (
    *("guess", "maybe", "perhaps", "probably", "wondering", "seems", "assume", "suppose"),
    *("wonder", "possibly", "must've", "should've", "i think", "not sure", "must have"),
    *("should have", "i thought", "i have to", "i need to", "i must", "i should", "they have to"),
    *("we don't know", "we don't see", "why", "how", "what", "whether", "if i want", "if we want"),
)
"""Words of a report or a doubt: what obliges next to them is no demand."""

OTHER_WORDS: Final = (
    # German
    *("niemals", "nie", "stets", "immer", "muss", "musst", "müssen", "müsst", "soll", "sollst"),
    *("sollen", "sollt", "sollte", "sollten", "keinesfalls", "verboten", "bitte", "verwende"),
    *("verwenden", "benutze", "benutzt", "nutze", "vermeide", "vermeidet", "beachte"),
    *("unbedingt", "ausschließlich", "auf keinen fall", "darf nicht", "darfst nicht"),
    *("dürfen nicht", "darf nur", "stelle sicher", "stell sicher", "achte darauf"),
    # French
    *("jamais", "toujours", "doit", "dois", "doivent", "devez", "évite", "évitez", "utilise"),
    *("utilisez", "veuillez", "interdit", "assure-toi", "assurez-vous", "n'oublie", "n'oubliez"),
    *("impérativement", "il faut", "je veux", "ne pas"),
    # Spanish, Portuguese
    *("nunca", "siempre", "jamás", "debe", "debes", "deben", "debería", "deberías", "evita"),
    *("evite", "asegúrate", "asegúrese", "prohibido", "utiliza", "utilice", "hay que"),
    *("tienes que", "por favor", "quiero que", "sempre", "deve", "deves", "devem", "deveria"),
    *("certifique-se", "proibido", "utilize", "mantenha", "mantén", "garanta", "tem que"),
    # Italian
    *("devi", "dovete", "devono", "dovrebbe", "assicurati", "vietato", "evitate", "utilizza"),
    *("bisogna", "per favore", "voglio che"),
    # Polish
    *("nigdy", "zawsze", "musi", "musisz", "muszą", "musicie", "należy", "powinien", "powinna"),
    *("powinno", "powinny", "unikaj", "unikajcie", "używaj", "używajcie", "upewnij", "proszę"),
    *("koniecznie", "nie wolno"),
    # Russian
    *("никогда", "всегда", "должен", "должна", "должно", "должны", "нельзя", "нужно", "надо"),
    *("следует", "обязательно", "запрещено", "избегай", "избегайте", "используй"),
    *("используйте", "пожалуйста", "ни в коем случае"),
)
"""Cues of languages that write words apart, anywhere in a sentence."""

OTHER_COMMANDS: Final = (
    *("ändere", "lösche", "fass", "berühre", "schreib", "schreibe", "füge", "entferne", "lass"),
    *("halte", "behalte", "antworte", "denk", "denke", "führe", "teste", "prüfe", "garde"),
    *("gardez", "réponds", "répondez", "écris", "écrivez", "respecte", "respectez", "laisse"),
    *("laissez", "usa", "responde", "escribe", "respeta", "mantieni", "rispondi", "scrivi"),
    *("rispetta", "responda", "escreva", "zachowaj", "pisz", "odpowiadaj", "pamiętaj", "пиши"),
    *("пишите", "отвечай", "отвечайте", "сохраняй", "сохраняйте", "оставь", "оставьте"),
)
"""Imperatives in the same languages, at the beginning of a clause."""

_OTHERS_FORBID: Final = (
    *(r"ne [^ ]+ (?:pas|jamais|rien|plus)", r"n'[^ ]+ (?:pas|jamais|rien|plus)", "não [^ ]+"),
    *("non [^ ]+[aei]re", "no [^ ]+(?:es|as|en|an) (?:el|la|los|las|un|una|en|ese|esta|este|nada)"),
    *("nie [^ ]+(?:[jb]|cie)", "не [^ ]+(?:й|йте|ь|ьте)", "non [^,]*mai", "mai [^ ]+[aei]re"),
)
"""Prohibitives in the same languages, at the beginning of a clause."""

_WIDE: Final = (
    # Chinese, Japanese, Korean, Hindi
    "不要|不得|不可|不许|不許|不准|不能|禁止|必须|必須|务必|務必|应该|應該|"
    "应当|應當|始终|始終|总是|總是|永远|永遠|绝不|絕不|千万|千萬|切勿|请勿|"
    "請勿|只能|只用|避免|严禁|嚴禁|别再|别动|别碰|别用|别改|别删|請始|请用|"
    "請用|请使用|請使用|请保持|請保持|ないで|てください|て下さい|でください|必ず|"
    "絶対|しないこと|べき|なければ|てはいけ|ではいけ|てはなら|ではなら|決して|"
    "常に|避けて|마세요|마십시오|말아|지 마|반드시|절대|항상|해야|금지|하세요|"
    "주세요|십시오|않도록|कभी|हमेशा|चाहिए|ज़रूर|जरूर|"
    " मत |कृपया|अनिवार्य|करना होगा|न करें"
)
"""Cues of scripts in which words are not apart, or in which an ending is the cue."""

_LEADS: Final = (
    *("and", "but", "then", "so", "also", "please", "ok", "okay", "yes", "yeah", "no", "now"),
    *("just", "instead", "kindly", "actually", "alright", "again", "first", "finally", "next"),
    *("oh", "hey", "thanks", "well", "only"),
)
"""Words before the verb of a command."""


def _any(cues: tuple[str, ...]) -> str:
    return f" (?:{'|'.join(cues)}) "


_LEAD_WORDS: Final = f"(?: (?:{'|'.join(_LEADS)})){{0,4}}"
_COMMAND: Final = f"(?:^| [,:]| but| then){_LEAD_WORDS}"
_NO: Final = (
    *("it", "that", "this", "i", "you", "we", "they", "he", "worries", "need", "problem", "idea"),
    *("way", "one", "on", "wonder", "doubt", "there", "what", "not", "longer", "the"),
)
_REPORTS: Final = "(?:is|are|was|were|has|have|had|did|does|found|made) "
_FORBIDS: Final = rf"^{_LEAD_WORDS} no (?!(?:{'|'.join(_NO)}) )(?:(?!{_REPORTS})[^ ,]+ ){{1,8}}$"
"""A sentence such as "No new dependencies!"."""

_IS_STRONG: Final = pattern(
    rf"(?:^| [,:]| but| then| and| or){_LEAD_WORDS}{_any(STRONG)}"
    rf"|(?<! to) make sure | must | mustn't | you never | you always | we never | we always "
    rf"|{_FORBIDS}|{_COMMAND}{_any(_OTHERS_FORBID)}"
)
_IS_COMMAND: Final = pattern(
    f"{_COMMAND}{_any((*KEEPING, *OTHER_COMMANDS))}|{_any((*WISHING, *OTHER_WORDS))}"
    f"|(?:^| [,:]){_LEAD_WORDS}{_any(CONDITIONS)}[^,]*(?:,[^,]*)?, {_any(ACTING)[1:]}"
)
_IS_OBLIGING: Final = pattern(_any(OBLIGING))
_IS_DOUBT: Final = pattern(_any(DOUBTS))
_ACTS: Final = pattern(f"(?:^| :){_LEAD_WORDS}{_any(ACTING)}")
_LASTS: Final = pattern(_any(LASTING))
_ASKS: Final = pattern(
    rf"^{_LEAD_WORDS} (?:why|what|what's|how|who|where|which"
    r"|(?:do|does|did|is|are|can|could|would|will|should|shall|have|has|am|was|were)"
    r" (?:we|i|you|they|it|there|this|that|he|she|the)) "
)
_IS_WIDE: Final = pattern(_WIDE)
_WIDE_LETTER: Final = pattern(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

_CUES: Final = (
    *(*STRONG, *KEEPING, *LASTING, *CONDITIONS, *OBLIGING, *WISHING, *OTHER_WORDS),
    *(*OTHER_COMMANDS, "non", "nie", "no", "ne", "n'"),
)
MARKS: Final = frozenset(
    [
        max(cue.replace("'", " ").replace("-", " ").split(), key=len).encode()
        for cue in _CUES
        if cue.isascii()
    ]
)
"""The longest part of each cue; an ASCII text without any of these words has no demand."""

LETTERS_ONLY: Final = (
    bytes([one if chr(one).isalpha() else 0x20 for one in range(128)]) + b" " * 128
)
"""A table for ``bytes.translate``: all but ASCII letters become spaces."""

_FENCES: Final = ("```", "~~~")
_BREAK: Final = pattern(
    r"[.!?<。！？।](?:(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\bcf\.)(?<!\bz\.B\.)"
    r"(?<!\bd\.h\.)[\"'”)\]]*\s+(?:(?=[\"'“(\[*`]*[A-Z0-9])"
    r"|(?<!\.\.\s)(?<!\betc\.\s)(?<!\bapprox\.\s)(?<!\bincl\.\s)(?<!\bresp\.\s)(?<!\bca\.\s)"
    r"(?<!^\d\.\s)(?<!^\d\d\.\s)(?=[\"'“(\[*`]*\w))"
    r"|(?<=<)/?[a-zA-Z][\w-]*>|(?<=[。！？।]))"
)
"""The break between sentences; a Latin mark at its beginning belongs to the sentence before.

It begins with a set of characters, which ``re`` searches for quickly.
"""

_LEAD: Final = pattern(r"(?:[-*+•#]+|\d{1,3}[.)])\s+")
_TOKEN: Final = pattern(
    r"[\w\u0900-\u0963](?:[\w\u0900-\u0963'./-]*[\w\u0900-\u0963])?"
    r"|[,;:()–—]|(?<=\s)-(?=\s)"
)
_LETTERS_AND_SPACES: Final = {
    code: None for code in range(128) if chr(code).isalpha() or chr(code).isspace()
}
_CODE: Final = pattern(
    r"[;{}]\s*$|^\s*(?:\$|>>>|[+-]{3} |@@|import |from \S+ import |def |class )|=>|->|\|\|"
)
_NOT_SAID: Final = pattern(
    r"\s*(?:>|⨯|\S+:\d+:"
    r"|\[?\d{1,4}[-:/]\d\d|at \S+\(|File \"|\w*(?:Error|Exception|Warning): |[➜$%] "
    r"|\[?(?:ERROR|WARN|WARNING|INFO|DEBUG|FATAL|TRACE)\b[\]: ])"
)
"""The beginning of a line that was quoted, or that a program logged."""


def demands_of(text: str) -> tuple[str, ...]:
    """The demands of a text that a person wrote, word for word, in order."""
    text = text[:MOST_CHARACTERS]
    for block in reversed(pasted_spans(text)):
        text = f"{text[: block.start]}\n{text[block.stop :]}"
    if "<" in text:
        text = without_elements(text)
    found: list[tuple[bool, str]] = []
    in_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(_FENCES):
            in_code = not in_code
        elif not in_code and _NOT_SAID.match(line) is None:
            found += [one for one in map(_demand, _sentences(line)) if one is not None]
    unlike = dict.fromkeys(found)
    if len(unlike) > MOST_DEMANDS:
        ranked = sorted(unlike, key=lambda one: not one[0])
        chosen = set(ranked[:MOST_DEMANDS])
        return tuple([sentence for strong, sentence in unlike if (strong, sentence) in chosen])
    return tuple([sentence for _, sentence in unlike])


def demands_in(message: dict[str, Any]) -> tuple[str, ...]:
    """The demands in a message that a person wrote; a harness's texts in it are left out.

    For a message of anybody else the answer means nothing: ``Facts.human`` tells who spoke.
    """
    found: dict[str, None] = {}
    for text in [part.value for part in read_parts(message) if part.kind == "text"]:
        begins = persons_part(text)
        if begins is not None:
            found.update(dict.fromkeys(demands_of(text[begins:])))
    return tuple(found)[:MOST_DEMANDS]


def has_mark(text: str) -> bool:
    """Whether a text may hold a demand: seen at once, since most texts hold none."""
    if len(text) > MOST_CHARACTERS or not text.isascii():
        return True  # to look for demands in so much of it takes less than to split the whole
    return not MARKS.isdisjoint(text.lower().encode().translate(LETTERS_ONLY).split())


def _sentences(line: str) -> list[str]:
    """The sentences of a line but for questions."""
    found: list[str] = []
    begins = 0
    for between in _BREAK.finditer(line):
        at = between.start()
        if line[at] not in "?？":
            found.append(line[begins : at + (line[at] in ".!")])
        begins = between.end()
    found.append(line[begins:])
    return found


def _demand(sentence: str) -> tuple[bool, str] | None:
    """A sentence without its list mark, and whether its cue is strong; None if it is no demand."""
    sentence = sentence.strip()
    lead = _LEAD.match(sentence)
    sentence = sentence if lead is None else sentence[lead.end() :].strip()
    if not has_mark(sentence) or sentence.rstrip("\"'”)]").endswith("?"):
        return None  # most sentences by far
    tokens = _TOKEN.findall(sentence.lower().replace("’", "'"))
    tokens = ["," if one in ";()–—-" else one for one in tokens]
    words = len(tokens) - tokens.count(",") - tokens.count(":")
    wide = not sentence.isascii() and _WIDE_LETTER.search(sentence) is not None
    few = len(sentence) < LEAST_WIDE if wide else words < LEAST_WORDS
    if few or words > MOST_WORDS:
        return None
    strong = _strength(f" {' '.join(tokens)} ")
    if strong is None or _CODE.search(sentence):
        return None
    return (strong, sentence) if _readable(sentence) * 10 >= len(sentence) * 7 else None


def _readable(sentence: str) -> int:
    """The number of letters and white space."""
    if sentence.isascii():
        return len(sentence) - len(sentence.translate(_LETTERS_AND_SPACES))
    return sum([one.isalpha() or one.isspace() or "\u0900" <= one <= "\u0963" for one in sentence])


def _strength(spoken: str) -> bool | None:
    """Whether words with blanks around them hold a strong cue; None if they hold none at all."""
    if _ASKS.search(spoken):
        return None
    if not spoken.isascii() and _IS_WIDE.search(spoken):
        return True
    doubts = _IS_DOUBT.search(spoken) is not None
    if _IS_STRONG.search(spoken) and not doubts:
        return True
    if _IS_COMMAND.search(spoken) or (not doubts and _IS_OBLIGING.search(spoken)):
        return False
    return False if _ACTS.search(spoken) and _LASTS.search(spoken) else None
