"""What a command prints: text for people, or with --json exactly one document on stdout; everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from surefoot.core.ids import run_of_step
from surefoot.core.redact import Redactor
from surefoot.core.visible import visible
from surefoot.doors import SystemClock
from surefoot.errors import CommitUnknown, InvalidInput, StoreUnavailable, SurefootError
from surefoot.runtime.secrets import EnvironmentSecrets

DONE = 0
FINDINGS = 1
RUN_FAILED = 1
WRONG_USE = 2
WAITS_FOR_A_PERSON = 3
UNREACHABLE = 4
REFUSED = 5
INTERNAL_ERROR = 70
INTERRUPTED = 130

COLUMN_CHARACTERS_MAX = 60
_IDS = {"run": "run_id", "step": "step_id", "act": "action_id", "conv": "conversation_id", "wrk": "worker_id"}


class CannotWrite(Exception):
    """stdout takes nothing more: a full disk, an error of its device."""


class Output:
    """One command's output. `language` chooses the display texts."""

    def __init__(self, as_json: bool, language: str = "en") -> None:
        self.as_json = as_json
        self.language = language
        self.json_lines = False
        """The lines on stderr are JSON: --log-format json."""
        self.looked_in: str | None = None
        """Where the command looks, and what to check where nothing is found there."""

    def document(self, value: object) -> None:
        """The one JSON document. Nothing is printed without --json."""
        if self.as_json:
            self.piece(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")

    def line(self, text: str = "") -> None:
        """A line for people on stdout; nothing with --json."""
        if not self.as_json:
            _write(text + "\n", _shown_in)

    def piece(self, text: str) -> None:
        """A piece of JSON, with and without --json: of a long output, its command puts the pieces together itself."""
        _write(text, _json_in)

    def note(self, text: str) -> None:
        """A line on stderr, with and without --json: progress and logs."""
        if sys.stderr is None:
            return
        # A line that cannot be written (a full disk, a pipe that nobody reads) is no reason to stop what is being done.
        with contextlib.suppress(OSError, ValueError):
            print(log_line(text) if self.json_lines else text, file=sys.stderr, flush=True)

    def table(self, rows: Sequence[Sequence[str]], indent: str = "") -> None:
        """Rows with aligned columns; the last column is as wide as it is."""
        for line in aligned(rows):
            self.line(indent + line)

    def error(self, error: SurefootError) -> int:
        """Print an error that a person can do something about; its exit code."""
        redactor = _redactor()
        message = str(error)
        if error.code == "not_found" and self.looked_in is not None:
            # A store is made where there is none: in the wrong folder, the right id is not found.
            message += f" {self.looked_in}"
        message = redactor.patterns(message)[0]
        self.document({"error": {"code": error.code, "message": message, "details": redactor.value(error.details)}})
        if not self.as_json:
            self.note(f"surefoot: {shown(message)}")
        return exit_code(error)

    def bug(self, error: BaseException) -> int:
        """Print an error that should not be: its traceback, redacted; its exit code."""
        redactor = _redactor()
        trace = "".join(traceback.format_exception(error))
        self.note(redactor.patterns(trace)[0])
        message = f"internal error ({type(error).__name__}); the traceback is on stderr. Please report it"
        self.document({"error": {"code": "internal_error", "message": message, "details": {}}})
        if not self.as_json:
            self.note(f"surefoot: {message}")
        return INTERNAL_ERROR


def log_line(text: str) -> str:
    """A log line as JSON: the time, the text, and the ids that stand in it, each under its name."""
    at = datetime.fromtimestamp(SystemClock().now().wall, UTC)
    found: dict[str, str] = {"time": at.isoformat(timespec="milliseconds"), "message": text}
    for kind, field in _IDS.items():
        match = re.search(rf"\b{kind}_[0-9a-z]{{26}}(?:_[0-9]{{5,}})?\b", text)
        if match is not None:
            found[field] = match[0]
    if "step_id" in found:
        found.setdefault("run_id", run_of_step(found["step_id"]))
    return msgspec.json.encode(found).decode()


def open_streams() -> None:
    """Open what the caller of this process closed of stdin, stdout and stderr: nothing comes, nothing can be written.

    No file of ours gets one of their numbers then, into which a library may write what it has to say.
    """
    for number, mode in enumerate(("r", "w", "w")):
        name = ("stdin", "stdout", "stderr")[number]
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                # stdout is opened for reading: what is written to it is refused, as a full disk refuses it.
                held = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
                setattr(sys, name, os.fdopen(held, mode, encoding="utf-8"))


def _shown_in(encoding: str, text: str) -> str:
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _json_in(encoding: str, text: str) -> str:
    return re.sub("[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)


def _write(text: str, escaped: Callable[[str, str], str]) -> None:
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError as problem:
            # A locale that is not UTF-8: what it has no character for is written as an escape, and nothing is lost.
            sys.stdout.write(escaped(problem.encoding, text))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise CannotWrite(problem.strerror or type(problem).__name__) from None


def hand_over() -> bool:
    """Give away what stdout and stderr still hold. False where stderr takes nothing: what it was told is lost."""
    taken = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            taken = stream is not sys.stderr
    return taken


def exit_code(error: SurefootError) -> int:
    """2 for wrong use, 4 for a store out of reach, 5 for a refusal."""
    if isinstance(error, InvalidInput):
        # What kind of decision an action takes is known from its row only.
        return REFUSED if error.code == "wrong_decision" else WRONG_USE
    return UNREACHABLE if isinstance(error, StoreUnavailable | CommitUnknown) else REFUSED


def _redactor() -> Redactor:
    redactor = Redactor()
    EnvironmentSecrets(redactor)
    return redactor


def shown(text: object) -> str:
    """A text that somebody else wrote, safe for a terminal: hidden and control characters are escapes."""
    return visible(str(text))[0]


def cut(text: str, characters_max: int = COLUMN_CHARACTERS_MAX) -> str:
    """`text` on one line, cut with a visible mark."""
    line = " ".join(text.split())
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"


def local(iso_time: str | None) -> str:
    """An ISO time as local date and time, "" for none."""
    return "" if iso_time is None else f"{datetime.fromisoformat(iso_time).astimezone():%Y-%m-%d %H:%M:%S}"


def clock_time(iso_time: str | None) -> str:
    """An ISO time as local time of day with milliseconds, "" for none."""
    if iso_time is None:
        return ""
    at = datetime.fromisoformat(iso_time).astimezone()
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"


def width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    return sum(2 if "\u1100" <= c <= "\u115f" or ("\u2e80" <= c <= "\uffe6" and c != "\u303f") else 1 for c in text)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines with aligned columns, two blanks apart."""
    if not rows:
        return []
    widths = [max((width(row[i]) for row in rows if i < len(row)), default=0) for i in range(max(map(len, rows)))]
    return ["  ".join(cell + " " * (widths[i] - width(cell)) for i, cell in enumerate(row)).rstrip() for row in rows]
