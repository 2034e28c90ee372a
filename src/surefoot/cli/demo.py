"""surefoot demo: the story on this machine. Exit 0 only if everything that it claims was found to be true."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

from surefoot.cli import human
from surefoot.cli.output import DONE, RUN_FAILED, WAITS_FOR_A_PERSON, Output, shown
from surefoot.cli.settings import Settings, operating_system_user
from surefoot.demo.processes import DemoFailed
from surefoot.demo.stories import Told, play
from surefoot.demo.timeline import Line
from surefoot.errors import InvalidInput, SurefootError
from surefoot.snapshot import ActionView

PARAGRAPH_CHARACTERS = 100


class NobodyAnswers(SurefootError):
    """A question, no terminal, and no --yes."""

    code = "nobody_answers"


class Terminal:
    """Tells the story and asks the person; with --yes it answers as the story has it."""

    def __init__(self, out: Output, yes: bool) -> None:
        self._out = out
        self._yes = yes

    def say(self, text: str = "") -> None:
        """A line, on stderr with --json."""
        (self._out.note if self._out.as_json else self._out.line)(text)

    def show(self, action: ActionView) -> None:
        """The question as `surefoot actions show` has it."""
        human.print_action(self._out, action, "  ")

    def ask(self, question: str, choices: str, as_told: str) -> str:
        """The choice. Raises NobodyAnswers at the end of stdin."""
        if self._yes:
            self.say(f"  {question} {as_told}   (--yes answers)")
            return as_told
        while True:
            print(f"  {question} ", end="", file=sys.stderr, flush=True)
            answer = sys.stdin.readline()
            if not answer:
                raise NobodyAnswers("the demo asks a person and nobody answers: use `surefoot demo --yes`")
            if answer.strip()[:1].lower() in choices and answer.strip():
                return answer.strip()[0].lower()


def show(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Play a story, print its timeline and what was found to be true; the exit code."""
    if found.model is not None and not all(found.model.partition(":")):
        raise InvalidInput(f"--model {found.model}: write provider and model, for example openai:gpt-5")
    signal.signal(signal.SIGTERM, _as_interrupt)
    with _folder(found.keep) as folder:
        try:
            told = asyncio.run(
                play(found.story, folder, Terminal(out, found.yes), operating_system_user(), found.model)
            )
        except DemoFailed as problem:
            out.document({"error": {"code": "demo_failed", "message": str(problem), "details": {}}})
            out.note(f"surefoot: {problem}")
            return RUN_FAILED
        except NobodyAnswers as problem:
            out.error(problem)
            return WAITS_FOR_A_PERSON
        out.document(told)
        _print(out, told, found.keep)
    return DONE if told.ok else RUN_FAILED


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """The folder of the demo's files; without --keep it goes with the demo. Raises InvalidInput."""
    if keep is None:
        made = Path(tempfile.mkdtemp(prefix="surefoot-demo-"))
        try:
            yield made.resolve()
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    kept = Path(keep).resolve()
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"--keep {keep}: {problem.strerror}; name a folder that can be written") from None
    if any(kept.iterdir()):
        raise InvalidInput(f"--keep {keep}: the folder is not empty; name a new one")
    yield kept


def _rows(line: Line) -> list[tuple[str, ...]]:
    at = datetime.fromtimestamp(line.at)
    first, *more = shown(line.text).split("\n")
    return [(f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}", line.who, first), *(("", "", text) for text in more)]


def _print(out: Output, told: Told, keep: str | None) -> None:
    out.line()
    out.line("What happened")
    out.table([row for line in told.timeline for row in _rows(line)], "  ")
    out.line()
    for text in textwrap.wrap(told.why, PARAGRAPH_CHARACTERS):
        out.line(text)
    out.line()
    out.line("Found to be true, in GitHub's own state and log and in the store")
    for check in told.checks:
        out.line(f"  {'yes' if check.ok else 'NO '}  {check.what}")
    out.line()
    verdict = "" if told.ok else "NOT ALL OF IT IS TRUE. "
    out.line(f"{verdict}Comments on GitHub: {told.comments}. {told.seconds:g} s.")
    if keep is None:
        out.line(f"To look further: surefoot demo --story {told.story} --keep DIR, then")
    else:
        out.line(f"To look further, in {told.folder} (reviewer.py, world.jsonl, the workers' logs):")
    store = f"sqlite:///{told.folder if keep else 'DIR'}/surefoot.db"
    out.line(f"  surefoot runs show {told.run.id if keep else 'RUN'} --messages --store {store}")
    out.line(f"  sqlite3 {told.folder if keep else 'DIR'}/surefoot.db 'select * from step'")
