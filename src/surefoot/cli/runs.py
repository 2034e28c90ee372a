"""surefoot runs: start, list, show, watch, message, signal, retry, cancel."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Mapping, Sequence

import msgspec

from surefoot.app import Surefoot
from surefoot.cli import human
from surefoot.cli.desk import Blocked
from surefoot.cli.local import desk
from surefoot.cli.output import DONE, RUN_FAILED, WAITS_FOR_A_PERSON, Output, shown
from surefoot.cli.session import given_text, given_value
from surefoot.cli.settings import Settings
from surefoot.cli.userfile import UserCode, load
from surefoot.errors import InvalidInput
from surefoot.snapshot import RunEvent, RunSnapshot, ToolTexts, event_line

Command = Callable[[argparse.Namespace, Settings, Output], Coroutine[None, None, int]]


class Watched(RunSnapshot, frozen=True):
    """A run that was followed: the snapshot where the watch ended, and the events up to there."""

    events: list[RunEvent] = msgspec.field(default_factory=list)


async def start(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Start a run; with --wait, work on it here until it ends or a person is asked (a server works by itself)."""
    text = given_text(found.text)
    metadata = _metadata(found.metadata)
    code, agent = _agent(found.file, settings)
    texts = {} if code is None else {tool.name: tool.display for tool in code.agent.tools.values()}
    async with desk(found, settings, out, code, worker=found.wait) as at:
        run = await at.start(
            agent,
            text,
            key=found.key,
            conversation=found.conversation,
            metadata=metadata,
            priority=found.priority,
        )
        if found.wait:
            out.note(f"{run.id}  started")
            run = await at.follow(run.id, 0, Teller(out, texts).tell, Blocked(out.note))
            out.document(run)
            human.print_what_next(out, run)
            return exit_of(run)
    out.document(run)
    out.line(f"{run.id}  {run.display.text}")
    out.line(f"  > surefoot runs watch {run.id}")
    if code is not None and settings.url is None:
        out.line(f"  > surefoot worker {found.file}   (if none works yet)")
    return DONE


def _agent(place: str, settings: Settings) -> tuple[UserCode | None, str]:
    """The user's code and its agent's name; a server needs the name alone, and then the code need not be here."""
    if settings.url is not None and not place.partition(":")[0].endswith(".py"):
        return None, place
    code = load(place)
    return code, code.agent.name


def _metadata(text: str | None) -> Mapping[str, object] | None:
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text.encode(errors="surrogateescape"))
    except msgspec.DecodeError as problem:
        raise InvalidInput(f"--metadata is not JSON: {problem}", code="wrong_use") from None
    if not isinstance(value, dict):
        raise InvalidInput('--metadata is a JSON object, for example {"pr": 128}', code="wrong_use")
    return value


async def list_runs(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Runs, newest first."""
    async with desk(found, settings, out) as at:
        runs = await at.runs(found.status, found.agent, found.before, found.limit)
    out.document(runs)
    human.print_runs(out, runs)
    human.note_unreadable(out, runs.unreadable)
    if runs.behind is not None:
        out.line(f"older ones: --before {runs.behind}")
    return DONE


async def show(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """One run, with --messages its conversation too."""
    async with desk(found, settings, out) as at:
        run = await at.run(found.id)
        messages = await at.messages(found.id) if found.messages else []
    members = msgspec.structs.asdict(run)
    out.document({**members, "messages": messages} if found.messages else run)
    human.print_run(out, run)
    if found.messages:
        human.print_messages(out, messages)
    return DONE


async def watch(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Follow a run until it ends or a person is asked."""
    teller = Teller(out, {})
    async with desk(found, settings, out) as at:
        run = await at.follow(found.id, found.after, teller.tell, Blocked(out.note))
    out.document(Watched(**msgspec.structs.asdict(run), events=teller.told))
    human.print_what_next(out, run)
    return exit_of(run)


class Teller:
    """Tells a run's story as it happens, on stdout for people and on stderr with --json. `texts` are those of tools."""

    def __init__(self, out: Output, texts: ToolTexts) -> None:
        self.told: list[RunEvent] = []
        self._out = out
        self._texts = texts

    def tell(self, events: Sequence[RunEvent], tools: Mapping[str, str | None]) -> None:
        """The next events, and the tool of each step."""
        self.told += events
        for event in events:
            line = event_line(event, tools, self._out.language, self._texts)
            if line is not None:
                (self._out.note if self._out.as_json else self._out.line)(human.timed(event, line))


async def story(sf: Surefoot, events: list[RunEvent], language: str) -> list[str]:
    """Events of one run as lines, those of interest."""
    steps = {row.step.id: row.step.tool_name for row in await sf.store.steps(sf.tenant, events[0].run_id)}
    run = (await sf.store.run(sf.tenant, events[0].run_id)).run
    texts = {name: tool.display for name, tool in sf.context.registry.of(run).tools.items()}
    lines = [(event, event_line(event, steps, language, texts)) for event in events]
    return [human.timed(event, line) for event, line in lines if line is not None]


def exit_of(run: RunSnapshot) -> int:
    """The exit code of a wait: completed, ended otherwise, or waiting for a person."""
    if run.status == "completed":
        return DONE
    return RUN_FAILED if run.status in human.ENDED else WAITS_FOR_A_PERSON


async def message(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """A message of the user; it takes its place once every open call has its result."""
    async with desk(found, settings, out) as at:
        run = await at.message(found.id, given_text(found.text), found.key)
    out.document(run)
    out.line(f"{run.id}  the message is written down; the agent sees it before its next turn")
    return DONE


async def signal(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """A signal of a program; a call that waits for it gets it, or the next one that does."""
    value = None if found.value is None else given_value(found.value)
    async with desk(found, settings, out) as at:
        new = await at.signal(found.id, found.name, value, found.key)
        run = await at.run(found.id)
    out.document(run)
    out.line(f"{run.id}  {'the signal is written down' if new else 'the signal had come before under this key'}")
    return DONE


async def retry(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Take up a failed or cancelled run in a new run of its conversation; said again, it is the same new run."""
    async with desk(found, settings, out) as at:
        run = await at.retry(found.id)
    out.document(run)
    out.line(f"{run.id}  takes up {found.id}: {run.display.text}")
    out.line(f"  > surefoot runs watch {run.id}")
    return DONE


async def cancel(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Stop a run: from the acknowledgement on nothing is sent; says what may have been sent before."""
    async with desk(found, settings, out) as at:
        receipt = await at.cancel(found.id)
        run = await at.run(found.id)
    steps = receipt.may_have_been_sent
    out.document(receipt)
    out.line(f"{run.id}  {run.display.text}: nothing more is sent")
    if steps:
        out.line("  may have been sent, and is looked up by any worker:")
        rows = [
            (str(s.sequence), s.tool_name or s.type, shown(s.operation_key or ""), shown(s.display.text)) for s in steps
        ]
        out.table(rows, "    ")
    else:
        out.line("  no call was under way")
    return DONE


COMMANDS: dict[str, Command] = {
    "start": start,
    "list": list_runs,
    "show": show,
    "watch": watch,
    "message": message,
    "signal": signal,
    "retry": retry,
    "cancel": cancel,
}
