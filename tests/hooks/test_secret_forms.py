"""The forms of secrets, one by one: what each finds, what only resembles it, and its time.

Secrets are put together here, so that no scanner of this repository takes one for real. Texts that
a form is timed with repeat its hints, with and without what may stand between, or go on for long
after one. So a form that is added is tried here, too.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from eventctx.hooks.redact import _EMAIL_STUMP, _KEY_STUMP, DEFAULT, _replace
from eventctx.hooks.secret_forms import PREFIXES, Form
from eventctx.hooks.secret_names import EMAILS, KEYS
from tests.hooks.test_redact import BLOCK, INNOCENT, KNOWN, NAMED

LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 8
HEX = "3fa94c07be5d1286" * 4
UPPER = "A7KQ2MZ9XW4RT6BN3PLC8VD5"
FIVES = f"{UPPER[:5]}-{UPPER[5:10]}-{UPPER[10:15]}"
KINDS = {form.kind for group in KEYS + EMAILS for form in group.forms}
DISCORD = "https://discord.com/api/webhooks/318821398619357185/{}"


def bot(number: str) -> str:
    """The first part of a token of Discord: the number of a bot in base64."""
    return base64.b64encode(number.encode()).decode().rstrip("=")


PROVIDERS = [
    ("abC8Q~" + LETTERS[:34], "secret"),
    ("~-.1Q~" + LETTERS[:31], "secret"),
    *((one + HEX, "token") for one in ("dop_v1_", "doo_v1_", "dor_v1_", "sntryu_")),
    *((one + HEX[:32], "token") for one in ("dapi", "shpat_", "shpca_", "shppa_")),
    ("dapi" + HEX[:32] + "-2", "token"),
    ("ATATT3" + "xFfGF0" + LETTERS[:170] + "=1A2B3C4D", "token"),
    ("ATBB" + LETTERS[:32], "token"),
    (bot("135792468013579246") + ".G49NjP." + LETTERS[:38], "token"),
    (bot("98765432109876543") + ".YIz98g." + LETTERS[:27], "token"),
    (bot("1357924680135792468") + ".Gx_-aB." + LETTERS[:38], "token"),
    ("110201543" + ":AA" + LETTERS[:33], "token"),
    ("shpss_" + HEX[:32], "secret"),
    ("glsa_" + LETTERS[:32] + "_" + HEX[:8], "token"),
    ("glc_" + "eyJvIjoiNjUyOTQ3Iiwibi" + LETTERS[:60] + "==", "token"),
    ("eyJrIjoi" + LETTERS[:60] + "=", "token"),
    ("sntrys_" + "eyJpYXQiOjE3MDAw" + LETTERS[:80] + "=_" + LETTERS[:43], "token"),
    ("PMAK-" + HEX[:24] + "-" + HEX[:34], "api-key"),
    ("tskey-auth-" + LETTERS[:12] + "CNTRL-" + LETTERS[:32], "token"),
    ("tskey-api-" + "abcDEF1CNTRL-" + "091234567890ABCDEF", "token"),
    *((one + HEX[:32], "api-key") for one in ("key-", "SK")),
    ("ops_" + "eyJzaWduSW5BZGRyZXNz" + LETTERS[:200], "token"),
    (f"A3-{UPPER[:6]}-{UPPER[6:12]}-{FIVES}-{UPPER[:5]}", "secret"),
    (f"A3-{UPPER[:6]}-{UPPER[6:17]}-{FIVES}", "secret"),
    ("NRAK-" + UPPER + "K2M", "api-key"),
    *((one + HEX[:40], "api-key") for one in ("fc-", "pul-", "e2b_")),
    *((one + LETTERS[:36], "token") for one in ("CFPAT-", "HRKU-", "nfc_", "nfo_", "nfp_", "nfu_")),
    *((one + LETTERS[:43], "api-key") for one in ("pcsk_", "phx_", "bb_live_", "lin_api_")),
    *((one + LETTERS[:46], "api-key") for one in ("napi_", "ntn_", "rnd_")),
    *((one + HEX[:32] + "_" + HEX[:10], "api-key") for one in ("lsv2_pt_", "lsv2_sk_")),
    ("re_" + LETTERS[:8] + "_" + LETTERS[:24], "api-key"),
    ("pk_" + "12345678" + "_" + UPPER + UPPER[:8], "api-key"),
    *((one + HEX[:40], "token") for one in ("bkua_", "lin_oauth_", "sbp_")),
    *((one + LETTERS[:40], "token") for one in ("figd_", "fo1_", "sb_secret_")),
    *((one + LETTERS[:43], "token") for one in ("pscale_oauth_", "pscale_tkn_", "dp.pt.")),
    ("CCIPAT_" + LETTERS[:22] + "_" + HEX[:40], "token"),
    *((one + LETTERS[:60], "token") for one in ("fm1r_", "fm2_")),
    ("sk." + "eyJ1" + LETTERS[:40] + "." + LETTERS[:22], "token"),
    (LETTERS[:14] + ".atlasv1." + LETTERS[:67], "token"),
    ("pat" + LETTERS[:14] + "." + HEX, "token"),
    ("secret_" + LETTERS[:43], "secret"),
    ("pscale_pw_" + LETTERS[:43], "secret"),
]


AROUND = ("{}", "got {} back", '"{}"', "({}),", "a\\n{}", "a={};", "…{}…")


@pytest.mark.parametrize(
    ("secret", "kind"), [*KNOWN, *PROVIDERS], ids=lambda value: str(value)[:12]
)
def test_a_known_form_is_replaced_wherever_it_stands(secret: str, kind: str) -> None:
    for around in AROUND:
        assert DEFAULT.text(around.format(secret)) == around.format(f"[redacted:{kind}]")


HUNTERS = [
    # command lines
    *("curl -u bob:{} https://example.org", "curl -ubob:{} https://example.org"),
    *("curl -sSLu bob:{} https://example.org", "curl --user=bob:{} https://example.org"),
    *("curl --proxy-user bob:{} https://example.org", "curl x; curl -s y -u bob:{}"),
    *('{{"command": "curl -u bob:{} https://x.org"}}', "use `curl -u bob:{}` here"),
    *("mysql -u root -p{} db", "mariadb-dump -u root -p{} db", "mysqladmin -h x -p{} status"),
    *("sshpass -p {} ssh bob@example", "sshpass -v -p {} ssh x"),
    "docker login -u bob -p {} registry.example",
    *("redis-cli -h cache -a {} ping", "unzip -q -P {} archive.zip"),
    "ldapsearch -x -D cn=admin -w {} -b dc=org",
    '{{"input": "[\\"curl\\",\\"--user\\",\\"bob:{}\\"]"}}',
    "run(('sshpass', '-p', '{}', 'ssh', 'x'))",
    # files
    *("machine example.org login bob password {}", "machine a password {} login bob"),
    *("machine example.org\n  login bob\n  password {}\n", "default login anonymous password {}"),
    "machine a login b account c password {}\nmachine d",
    '"machine a\\nlogin bob\\npassword {}\\nmachine d"',
    *("<password>{}</password>", '<wsse:Password Type="x">{}</wsse:Password>'),
    *("<db.password>\n  {}</db.password>", "<keyPassphrase>{}</keyPassphrase>"),
    "    password: {}\n    username: bob",
]
TWO_WORDS = [
    *("curl -X POST \\\n  -H 'a: b' \\\n  -u 'bob:{}' x", 'curl -H "a: b" -u "bob:{}" x'),
    *('{{"command": "curl -u \\"bob:{}\\" x"}}', "mysqldump -uroot -p'{}' db > x.sql"),
    *("sshpass -p'{}' scp a b:c", "docker login registry.example -p '{}'"),
    *("zip -r -P '{}' archive.zip folder", "<Password>{}</Password>"),
    '["curl", "-s", "-u", "bob:{}", "https://x.org"]',
]
BESIDE = [
    *((around, "hunter2", "password") for around in HUNTERS),
    *((around, "two words", "password") for around in TWO_WORDS),
    ("/usr/bin/curl --user bob:{} -o x https://example.org", "p@ss:w$rd", "password"),
    ("docker exec db mysql -u root -p{}", "SECRET", "password"),
    ("run(['mysql', '-u', 'root', '-p{}'])", 'say "x"', "password"),
    ("<pwd><![CDATA[{}]]></pwd>", "a]b", "password"),
    ("<clientSecret>{}</clientSecret>", "abc1", "secret"),
    ("<api-key>{}</api-key>", "abc1", "api-key"),
    ("<accessToken>{}</accessToken>", "abc1", "token"),
    ("users:\n- user:\n    token: {}\n", "abc1", "token"),
    ("    client-key-data: {}\n", "LS0tLS1CRUdJTiBSU0E=", "private-key"),
    # Azure
    ("Protocol=https;AccountName=a;AccountKey={};Suffix=w.net", LETTERS[:86] + "==", "api-key"),
    ("Endpoint=sb://x.y.net/;SharedAccessKey={}", LETTERS[:43] + "=", "api-key"),
    ("https://x.blob.core.w.net/c?sv=2022-11-02&sr=b&sig={}", LETTERS[:43] + "%3D", "token"),
    ("?sv=2022&sig={}&se=2026", LETTERS[:20] + "%2B%2f" + LETTERS[:21] + "%3D", "token"),
    ('{{"url": "https://x.y/c?sv=1\\u0026sig={}"}}', LETTERS[:43] + "%3D", "token"),
    ("AZURE_CLIENT_SECRET={}", "abC8Q~" + LETTERS[:34], "secret"),
    # webhooks and bots
    (DISCORD, LETTERS[:68], "token"),
    ("https://discordapp.com/api/v10/webhooks/3188213986193571/{}?wait=1", LETTERS[:68], "token"),
    ("https://api.telegram.org/bot{}/getMe", "110201543" + ":AA" + LETTERS[:33], "token"),
    # Twilio
    ("TWILIO_AUTH_TOKEN={}", HEX[:32], "token"),
    ("auth_token: '{}'", HEX[:32], "token"),
    ('Client("' + "AC" + HEX[:32] + '", "{}")', HEX[16:48], "token"),
    ("curl -X POST -u " + "AC" + HEX[:32] + ":{} https://api.twilio.com", HEX[16:48], "password"),
]


@pytest.mark.parametrize(("around", "secret", "kind"), [*NAMED, *BESIDE])
def test_a_value_is_replaced_by_what_stands_beside_it(around: str, secret: str, kind: str) -> None:
    assert DEFAULT.text(around.format(secret)) == around.format(f"[redacted:{kind}]")


NEAR_MISSES = [
    # hashes, ids, names
    *("git show 3fa94c07be5d12863fa94c07be5d12863fa94c07", "ATBBshort ATATT3short"),
    "0b5ce4b1-2f7c-4c0b-9c2e-5a8d2f1f0a11 and md5 " + HEX[:32],
    "sha512-" + LETTERS[:86] + "==",
    "cache-key-" + HEX[:32] + " and monkey-" + HEX[:32] + " and key-value-store-of-the-first-order",
    "task-" + HEX[:32] + " tskey-word-and-words-only PMAK-short",
    "SKETCH SKU" + HEX[:32] + " ACCOUNT AC" + HEX[:32],
    "glc_context_destroy_all_the_buffers_now glsa_202401_01_advisory_of_the_day",
    "ops_per_second_at_the_ninetieth_percentile_of_all_runs_measured_here",
    "sntrys_is_the_prefix_of_tokens_of_organizations_and_this_is_no_token",
    "secret_of_the_seventh_day_of_the_week_1 re_compile_the_pattern_2 re_sub ntn_words pk_1_A",
    "lin_api_client rnd_state_of_the_generator_number_1 pul-" + HEX[:12] + " fc-layer-1",
    "shpat_like_words dop_v1_words dapi" + HEX[:20] + " dapifoobar",
    "NotificationServiceManager.config.some_function_with_a_long_name",
    "MainApplicationEntryPoint.handle.do_something_with_all_of_them()",
    "20261122:not-a-bot-token 12:30:45 1732281600:" + HEX[:32],
    *("A3-sized paper, A3-LANDSCAPE, A3-B4", "Q~ and ab1Q~short and x~1"),
    "sig=SIGTERM sig=9 &sig=abc config=" + LETTERS[:50],
    "https://discord.com/api/webhooks/ and https://example.org/webhooks/123456/abc",
    # command lines
    *("docker run -u 1000:1000 image", "docker run --user app:app image"),
    *("public static final eyJ", "rsync -u a:b c", "mysql -port 3306 -p db"),
    '["curl", "x"], ["docker", "-u", "app:app", "y"], ["curl", "-u", "bob"]',
    '["mysql", "-port", "3306"], ["cp", "-preserve", "file"], ["mysql", "-p", "db"]',
    "curl -u bob https://example.org:8080/x",
    "curl --user-agent a:b -H 'x: y' https://example.org",
    "curl https://example.org\nsudo -u postgres:x",
    *("mysql -h localhost -P 3306 -p -e 'select 1'", "mysql -protocol tcp"),
    "mysql db < x.sql && cp -pr a b; mysql -e x | find . -print",
    *("cp -p file other; mkdir -pv a/b; ls -p", "psql -p5432; ssh -p2222 host; nmap -p80 host"),
    "grep -pattern mysql-pfile my.mysql -pfile",
    "sshpass -e ssh host; sshpass -f file ssh host",
    "docker run -p 8080:80 web; docker ps -a; docker login --help",
    "redis-cli -h cache -p 6379 ping; unzip -p a.zip | head; zip -r a.zip b; ldapsearch -x -W",
    *("api_key = os.environ['API_KEY']", "token = os.getenv('TOKEN', default)"),
    *("const apiKey = process.env.API_KEY;", 'password: ENV["DB_PASSWORD"]'),
    # files
    "the machine learning login page and the password reset page",
    "use default login and password prompts",
    "usage: tool <password> <token> <file>",
    "<password></password> <password/> <passwordPolicy>strict</passwordPolicy>",
    "<token>512</token> <maxTokens>4096</maxTokens> <password>string</password>",
    "<input name=token type=text>label</label>",
    "List<Token> tokens = new ArrayList<Token>(); // </end>",
    "<secret> is replaced, so </b> stays",
    *(
        f"{one}: LS0tLS1CRUdJTiB"
        for one in ("client-certificate-data", "certificate-authority-data")
    ),
    # code
    "password: str, token: str | None, secret: bytes",
    "def connect(password: str = None) -> None: ...",
]


@pytest.mark.parametrize("text", [*INNOCENT, *NEAR_MISSES])
def test_what_only_resembles_a_form_survives(text: str) -> None:
    assert DEFAULT.text(text) == text


def test_a_secret_that_a_cut_left_the_beginning_of_goes_too() -> None:
    for prefix in PREFIXES:
        begun = f"{prefix}{LETTERS[:7]}"
        assert begun not in DEFAULT.text(f"{'x ' * 400}{begun}…"), prefix
    assert DEFAULT.text(f"{'x ' * 400}ACTION…").endswith("ACTION…")


def test_the_reference_names_every_prefix_and_every_kind_of_name() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/redaction.md").read_text(encoding="utf-8")
    hints = {hint for group in KEYS for form in group.forms for hint in form.hints}
    # What is in every text or in a URL says nothing of a form.
    told = hints - {"-----BEGIN", ".", ":", "@", "lient", "earer ", "asic ", "hooks"}
    wanted = [one.strip() for one in told]
    wanted += [*(f"`{prefix}" for prefix in PREFIXES), *(f"| `{kind}` |" for kind in KINDS)]
    assert [one for one in wanted if one not in page] == []


# -- time ------------------------------------------------------------------------------------------


SIZE = 16_000
QUICK = 0.002
"""Seconds in which a form reads ``SIZE`` characters: too quick for reading them many times."""
LINEAR = 9
"""Below it, the time of four times the text is in proportion; above it is the square's."""

GROUPS = KEYS + EMAILS
FORMS = [form for group in GROUPS for form in group.forms]
GATES = [group.gate for group in GROUPS if group.gate is not None]
SEPARATORS = ("", *' \n-:\\"a=', ': "', "='", "a1.")

UNITS = (
    *("a", "@", "password=", "--a", "://a:", "eyJaaaaaaaa.", "-eyJaaaaaaaa", "sk-", "a@b.org-"),
    *("Bearer aaaaaaaaa ", "x secret: ab1 ", "password=[redacted:", "Cookie:", "curl \\"),
    *("<password>", BLOCK.format("BEGIN"), BLOCK.format("END")),
)


def repeated(unit: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda size: before + unit * (size // len(unit)) + after


HARD = [
    *map(repeated, UNITS),
    *(repeated("a", after="@"), repeated("--a", after="token")),
    *(repeated("a.", "token:", "@x"), repeated("a.", "a@"), repeated('\\"', '"password":"')),
    *(repeated(",", "password="), repeated(" ", "password", "="), repeated("\\", "password")),
    *(repeated("ab/ ", after="-----END"), repeated("a", "sk-")),
]


def hard(hints: tuple[str, ...]) -> Iterator[Callable[[int], str]]:
    """Texts, by length, in which a form begins often, or reads far."""
    for hint, between in product(hints, SEPARATORS):
        yield repeated(hint + between)
        if between:
            yield repeated(between, hint)


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """The least of some measures: what others do on the machine only ever adds to it."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def grows(make: Callable[[int], str], work: Callable[[str], object]) -> float:
    """How many times as long four times the text takes: 4 where linear, 16 where quadratic.

    0 for a text that is read too quickly to be measured.
    """
    part, whole = make(SIZE), make(4 * SIZE)
    once = seconds(lambda: work(part))
    if once < QUICK:
        return 0
    once = min(once, seconds(lambda: work(part)))
    growth = seconds(lambda: work(whole)) / once
    if growth < LINEAR:
        return growth
    return seconds(lambda: work(whole), 3) / min(once, seconds(lambda: work(part), 3))


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.pattern[:40])
def test_a_gate_takes_time_in_proportion_to_any_text(gate: re.Pattern[str]) -> None:
    (group,) = [one for one in GROUPS if one.gate is gate]
    for make in hard(tuple({hint for form in group.forms for hint in form.hints})):
        assert grows(make, gate.search) < LINEAR, make(80)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [*FORMS, _KEY_STUMP, _EMAIL_STUMP], ids=lambda form: form.pattern.pattern[:40]
)
def test_a_form_takes_time_in_proportion_to_any_text(form: Form) -> None:
    for make in hard(form.hints):
        assert grows(make, lambda text: _replace(text, form)) < LINEAR, make(80)


@pytest.mark.parametrize("make", HARD, ids=lambda make: ascii(make(40)))
def test_redaction_as_a_whole_takes_time_in_proportion_to_texts(make: Callable[[int], str]) -> None:
    assert grows(make, DEFAULT.text) < LINEAR
