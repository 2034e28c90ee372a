"""Redaction: known secret values first, at every exit; patterns as a second net over views.

Redaction changes what is shown and recorded, never the bytes that are sent. A known value is found plain and as JSON,
Python, HTML, percent, mail, hexadecimal and base64 text (in all three alignments; see `forms`), also where whitespace
was put inside it, and escaped any number of times over, as texts inside JSON inside a log are. Writers differ in what
they escape (`+` is `\\u002B` in some JSON, `'` is `&#39;` in some HTML, and every letter may be): such texts are read
back before they are searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from surefoot.core.escapes import escape_begun, may_be_escaped, read_back, squeezed, unescaped
from surefoot.core.forms import SECRET_CHARACTERS_MIN as SECRET_CHARACTERS_MIN, known_forms
from surefoot.core.text import clean_text, cut

ERROR_CHARACTERS_MAX = 500
HELD_CHARACTERS = 256
"""More of a stream held back is looked at again when it has grown by a quarter."""
_SCANNED_CHARACTERS_MAX = 200_000
_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class Redactor:
    """The known secret values of a process. Values are added as they are resolved, and never leave through `repr`."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._forms: dict[str, str] = {}
        self._values: set[str] = set()
        self._needles: list[str] = []
        """Those of the forms that hold no other of their value: a text without these is without all of them."""
        self._clean = ("", 0)
        """The text that was searched last and held none of so many needles: what is refused is viewed next."""
        self._pattern = (0, re.compile("(?!)"))
        """All forms in one, the longest first, and of how many it was made."""
        self._digits = False
        for name, value in (known or {}).items():
            self.add(name, value)

    def __repr__(self) -> str:
        return f"Redactor({len(set(self._forms.values()))} known)"

    def add(self, name: str, value: str) -> None:
        """Know `value` under `name` from here on. Shorter than 6 characters, it is ignored."""
        if value in self._values:
            return
        label = _NAME.sub("_", name)[:60] or "secret"
        forms = set(known_forms(value))
        for form in forms:
            self._forms.setdefault(form, label)
        # The list only grows: another thread may be going through it. What is known counts as such when all of it is.
        self._needles += [form for form in forms if not any(other in form for other in forms if other != form)]
        self._digits = self._digits or value.strip().isdigit()
        self._values.add(value)

    def text(self, text: str) -> str:
        """`text` with each known value replaced by `[redacted:NAME]`, and so each token of surefoot's own.

        Such a token is known by its form alone, and is of use to nobody but whoever holds it: no text needs it.
        """
        if self._is_clean(text):
            return text
        return self._known(_own_token().sub(f"[redacted:{OWN}]", text))

    def _known(self, text: str) -> str:
        if self._holds(text):
            text = self._compiled().sub(lambda match: f"[redacted:{self._forms[match[0]]}]", text)
        text = self._split_by_whitespace(text)
        return self._escaped(text) if may_be_escaped(text) else text

    def value(self, value: object) -> object:
        """A JSON value with `text` applied to its texts, keys and, where a secret is a number, its integers."""
        return _walk(value, self.text, self._digits)

    def has_known(self, data: bytes | str) -> str | None:
        """The name of a known value that `data` holds, or None. Such arguments are refused before any approval."""
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        if self._is_clean(text):
            return None
        if _own_token().search(text):
            return OWN
        matches = (self._compiled().search(written) for written in _readings(text))
        return next((self._forms[match[0]] for match in matches if match), None)

    def maybe_begins(self, text: str) -> int:
        """The first place from which the rest of `text` may be the beginning of a known value, else its length.

        Whitespace inside the value does not hide it. A first half of a surrogate pair counts too.
        """
        inside = {index for gap in _gap().finditer(text) for index in range(gap.start(), gap.end())}
        places = [index for index in range(len(text)) if index not in inside]
        joined = "".join(text[index] for index in places)
        first = len(text)
        for form in tuple(self._forms):
            first = min(first, _begin_of(form, joined, places, first), _begin_of(form, text, range(len(text)), first))
        if may_be_escaped(text) or text.endswith("\\"):
            first = min(first, self._escape_begins(text, first))
        own = _own_beginning().search(text)
        if own is not None:
            first = min(first, own.start())
        if first == len(text) and text and ("\ud800" <= text[-1] <= "\udbff"):
            first -= 1
        return first

    def patterns(self, text: str) -> tuple[str, list[str]]:
        """`text` with known values and what looks like a credential replaced, and the names of the patterns that hit.

        For views and previews: what only looks like a secret is flagged, never refused.
        """
        flags: list[str] = []

        def replaced(match: re.Match[str]) -> str:
            name = match.lastgroup or "secret"
            if name not in flags:
                flags.append(name)
            if name != "assigned_secret":
                return f"[redacted:pattern:{name}]"
            return f"{match['assigned']}[redacted:pattern:{name}]"

        known = text if self._is_clean(text) else self._known(text)
        return (_net().sub(replaced, known), flags) if _may_hit(known) else (known, flags)

    def patterns_value(self, value: object) -> tuple[object, list[str]]:
        """`patterns` over a JSON value; texts under a key such as `password` count as hits too."""
        flags: list[str] = []

        def seen(text: str) -> str:
            out, found = self.patterns(text)
            flags.extend(name for name in found if name not in flags)
            return out

        def named(key: str) -> bool:
            hit = _secret_key().fullmatch(key) is not None
            if hit and "assigned_secret" not in flags:
                flags.append("assigned_secret")
            return hit

        return _walk(value, seen, self._digits, named), flags

    def _is_clean(self, text: str) -> bool:
        """Whether `text` holds nothing known, in whatever way it is read: told by plain searches, and nearly always so.

        What is clean stays as it is; all else is read with care.
        """
        count = len(self._needles)
        if len(text) < SECRET_CHARACTERS_MIN or (text, count) == self._clean:
            return True
        if "sft_" in text or "sfs_" in text or self._holds(text):
            return False
        joined = squeezed(text)
        if len(joined) < len(text) and self._holds(joined):
            return False
        if may_be_escaped(text) and self._holds_unescaped(text):
            return False
        self._clean = (text, count)
        return True

    def _holds(self, text: str) -> bool:
        # Many plain searches are faster than one alternation, and nearly every text holds none.
        for needle in self._needles:  # noqa: SIM110 - a generator would cost more than the searches
            if needle in text:
                return True
        return False

    def _compiled(self) -> re.Pattern[str]:
        # Compiled again by count, not by a flag: another thread may add a value while this one compiles.
        count, pattern = self._pattern
        if count != len(self._forms):
            ordered = sorted(self._forms, key=len, reverse=True)
            pattern = re.compile("|".join(re.escape(form) for form in ordered))
            self._pattern = (len(ordered), pattern)
        return pattern

    def _escape_begins(self, text: str, none: int) -> int:
        """The same for a text in which escapes are read back; the last of them may be there in part only."""
        readings: list[tuple[str, Sequence[int]]] = [(text, range(len(text)))]
        readings += [(written, [start for start, _ in spans]) for written, spans in unescaped(text)]
        first = none
        for written, places in readings:
            part = escape_begun().search(written)
            whole = written if part is None else written[: part.start()]
            first = first if part is None else min(first, places[part.start()])
            for form in tuple(self._forms):
                first = min(first, _begin_of(form, whole, places, first))
        return first

    def _escaped(self, text: str) -> str:
        for written, spans in reversed(unescaped(text) if self._holds_unescaped(text) else []):
            hits = [(spans[m.start()][0], spans[m.end() - 1][1], m[0]) for m in self._compiled().finditer(written)]
            if hits:
                # All of one reading at once: a document that holds a value a thousand times is not read as often.
                return self._known(self._cut_out(text, hits))
        return text

    def _cut_out(self, text: str, hits: Sequence[tuple[int, int, str]]) -> str:
        """`text` without these places, in order. Two may share one: several characters come from one escape."""
        parts, done = [], 0
        for start, end, form in hits:
            if start >= done:
                parts += [text[done:start], f"[redacted:{self._forms[form]}]"]
            done = max(done, end)
        return "".join([*parts, text[done:]])

    def _holds_unescaped(self, text: str) -> bool:
        return any(self._holds(written) for written in read_back(text))

    def _split_by_whitespace(self, text: str) -> str:
        # Wrapped base64, values broken over lines or escaped again: looked for without the gaps, cut out with them.
        joined = squeezed(text)
        if len(joined) == len(text) or not self._holds(joined):
            return text
        hits = list(self._compiled().finditer(joined))
        gaps = {index for gap in _gap().finditer(text) for index in range(gap.start(), gap.end())}
        places = [index for index in range(len(text)) if index not in gaps]
        return self._cut_out(text, [(places[m.start()], places[m.end() - 1] + 1, m[0]) for m in hits])


class RedactedStream:
    """Redaction of a text that comes in pieces: what may be the beginning of a known value waits for the next piece.

    What `feed` and `end` give, put together, is `redactor.text` of the whole.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._look_at = 0

    def feed(self, piece: str) -> str:
        """One more piece; what can be shown now."""
        text = self._held + piece
        if len(text) < self._look_at:
            self._held = text
            return ""
        place = self._redactor.maybe_begins(text)
        if place < len(text):
            shown, rest = self._redactor.text(text[:place]), text[place:]
            if shown + self._redactor.text(rest) != self._redactor.text(text):
                place = 0  # A known value reaches over the place: nothing is shown before more is known.
        self._held = text[place:]
        # A long run of escapes is held back whole: read anew with each piece, it would cost its length times itself.
        held = len(self._held)
        self._look_at = held + held // 4 if held > HELD_CHARACTERS else 0
        return clean_text(self._redactor.text(text[:place]))

    def end(self) -> str:
        """What was held back, now that nothing more comes."""
        text, self._held = self._held, ""
        return clean_text(self._redactor.text(text))


def safe_error(error: BaseException, redactor: Redactor, characters_max: int = ERROR_CHARACTERS_MAX) -> str:
    """The error's class and its message, redacted, cut, without traceback or arguments. Never raises an Exception."""
    try:
        message = clean_text(str(error))[:_SCANNED_CHARACTERS_MAX]
    except Exception:
        message = "its message could not be read"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return cut(redactor.patterns(text)[0], characters_max)[0]


def _begin_of(form: str, text: str, places: Sequence[int], none: int) -> int:
    """Where in the original the longest end of `text` stands that begins `form` and is shorter than it."""
    start = max(len(text) - len(form) + 1, 0)
    while (start := text.find(form[0], start)) != -1:
        if form.startswith(text[start:]):
            return places[start]
        start += 1
    return none


def _readings(text: str) -> Iterator[str]:
    """`text` in each of the ways in which a reader may take it."""
    yield text
    joined = squeezed(text)
    if len(joined) < len(text):
        yield joined
    if may_be_escaped(text):
        yield from read_back(text)


@cache
def _gap() -> re.Pattern[str]:
    return re.compile(r"(?:\s|\\+[nrt]?)+")


def _walk(
    value: object, change: Callable[[str], str], numbers: bool, named: Callable[[str], bool] | None = None
) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        out: dict[str, object] = {}
        for key, item in value.items():
            shown = _free(change(key) if isinstance(key, str) else str(key), out)
            secret = named is not None and isinstance(item, str) and named(str(key))
            out[shown] = "[redacted:pattern:assigned_secret]" if secret else _walk(item, change, numbers, named)
        return out
    if isinstance(value, list | tuple):
        return [_walk(item, change, numbers, named) for item in value]
    if numbers and isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 10_000:
        text = str(value)
        changed = change(text)
        return value if changed == text else changed
    return value


def _free(key: str, taken: Mapping[str, object]) -> str:
    """`key`, numbered where two keys became one by redaction: no entry is lost."""
    number, free = 2, key
    while free in taken:
        free, number = f"{key}#{number}", number + 1
    return free


# ---- the second net. Compiled at first use: importing surefoot stays cheap.

# Every quantifier is bound, and each start is fenced by what may not stand before it, so that time is linear.
_NET = {
    "private_key": r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----[^-]{0,16000}"
    r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----)?",
    "github_token": r"(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{16,255}|github_pat_[A-Za-z0-9_]{20,255})",
    "gitlab_token": r"(?<![A-Za-z0-9_-])glpat-[A-Za-z0-9_-]{16,100}",
    "surefoot_token": r"(?<![A-Za-z0-9_])sf[ts]_[a-z2-7]{1,400}_[0-9a-z]{26}_[a-z2-7]{52}",
    "slack_token": r"(?<![A-Za-z0-9-])xox[abeoprs]-[A-Za-z0-9-]{10,250}",
    "stripe_key": r"(?<![A-Za-z0-9_])(?:sk|rk|pk|whsec)_(?:(?:live|test)_)?[A-Za-z0-9]{16,250}",
    "model_key": r"(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{16,250}",
    "google_key": r"(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{30,50}",
    "aws_key": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "jwt": r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{6,4000}\.[A-Za-z0-9_-]{6,8000}\.[A-Za-z0-9_-]{6,2000}",
    "authorization_header": r"(?i:(?<![a-z])(?:bearer|basic|token)\s{1,3}[a-z0-9._~+/=-]{16,4000})",
    "url_password": r"(?<=://)[^\s/:@]{0,100}:[^\s/@]{1,200}(?=@)",
    "assigned_secret": r"(?P<assigned>(?i:(?<![a-z])"
    r"(?:password|passwd|pwd|passphrase|secret|api[_-]?key|access[_-]?key|client[_-]?secret|(?:access|auth|refresh|api)?[_-]?token)[\"']?\s{0,3}[:=]\s{0,3}[\"']?))"
    r"(?!\[redacted)[^\s\"'&,;]{6,400}",
}


OWN = "surefoot_token"


@cache
def _own_token() -> re.Pattern[str]:
    return re.compile(_NET[OWN])


@cache
def _own_beginning() -> re.Pattern[str]:
    """What may be the beginning of a token at the end of a text."""
    return re.compile(r"(?<![A-Za-z0-9])s(?:f(?:[ts](?:_[0-9a-z_]{0,490})?)?)?\Z")


@cache
def _net() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _NET.items()))


_HINTS = {
    "": (
        "private key", "xox", "whsec", "aiza", "akia", "asia", "eyj", "://", "bearer", "basic", "token", "passw", "pwd",
        "passphrase", "secret", "apikey", "accesskey",
    ),
    "_": (
        "gho_", "ghp_", "ghu_", "ghs_", "ghr_", "github_pat_", "sfs_", "sft_", "sk_", "rk_", "pk_", "api_key",
        "access_key",
    ),
    "-": ("glpat-", "sk-", "rk-", "pk-", "api-key", "access-key"),
}  # fmt: skip
"""Without any of these no pattern can hit; by a character that all of them hold, looked for first."""


def _may_hit(text: str) -> bool:
    # Many plain searches are several times faster than one alternation, and nearly every text holds none.
    lower = text.lower() if text.isascii() else text.casefold()
    for mark, hints in _HINTS.items():
        if mark in lower:
            for hint in hints:
                if hint in lower:
                    return True
    return False


@cache
def _secret_key() -> re.Pattern[str]:
    return re.compile(
        r"(?i)(?:.{0,40}[_-])?(?:password|passwd|pwd|passphrase|secret|api[_-]?key|access[_-]?key|token)|authorization|cookie"
    )
