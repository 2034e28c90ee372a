"""surefoot runs: start, list, show, watch, message, signal, retry, cancel."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Mapping

import msgspec

from surefoot.app import EVENTS_PAGE, Surefoot
from surefoot.cli import human
from surefoot.cli.output import DONE, RUN_FAILED, WAITS_FOR_A_PERSON, Output, shown
from surefoot.cli.session import given_text, given_value, opened, person
from surefoot.cli.settings import Settings
from surefoot.cli.userfile import load
from surefoot.core.ids import run_of_step
from surefoot.errors import InvalidInput
from surefoot.snapshot import (
    RunEvent,
    RunSnapshot,
    StepView,
    at_rest,
    event_line,
    message_view,
    public_event,
    run_summary,
)

Command = Callable[[argparse.Namespace, Settings, Output], Coroutine[None, None, int]]
WAIT_SECONDS = 3_600.0


class Watched(RunSnapshot, frozen=True):
    """A run that was followed: the snapshot where the watch ended, and the events up to there."""

    events: list[RunEvent]


class Cancelled(msgspec.Struct, frozen=True):
    """The acknowledgement of a cancel: nothing more is sent; these calls may have been."""

    run_id: str
    status: str
    may_have_been_sent: list[StepView]


async def start(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Start a run; with --wait, work on it here until it ends or a person is asked."""
    text = given_text(found.text)
    metadata = _metadata(found.metadata)
    code = load(found.file)
    agent = code.agent
    async with opened(settings, out, [agent], code.tools, worker=found.wait) as sf:
        run = await sf.start(
            agent, text, key=found.key, conversation_id=found.conversation, metadata=metadata, by=person(found)
        )
        if found.wait:
            out.note(f"{run.id}  started")
            run, _ = await follow(sf, run.id, 0, out)
            out.document(run)
            human.print_what_next(out, run)
            return exit_of(run)
    out.document(run)
    out.line(f"{run.id}  {run.display.text}")
    out.line(f"  > surefoot runs watch {run.id}")
    out.line(f"  > surefoot worker {found.file}   (if none works yet)")
    return DONE


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
    async with opened(settings, out) as sf:
        rows = await sf.store.runs(
            sf.tenant, status=found.status, agent=found.agent, before=found.before, limit=found.limit
        )
    runs = [run_summary(row, out.language) for row in rows]
    out.document(runs)
    human.print_runs(out, runs)
    if len(runs) == found.limit:
        out.line(f"older ones: --before {runs[-1].id}")
    return DONE


async def show(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """One run, with --messages its conversation too."""
    async with opened(settings, out) as sf:
        run = await sf.snapshot(found.id, out.language)
        rows = await sf.messages(found.id) if found.messages else []
    messages = [message_view(row) for row in rows]
    members = msgspec.structs.asdict(run)
    out.document({**members, "messages": messages} if found.messages else run)
    human.print_run(out, run)
    if found.messages:
        human.print_messages(out, messages)
    return DONE


async def watch(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Follow a run until it ends or a person is asked."""
    async with opened(settings, out) as sf:
        run, events = await follow(sf, found.id, found.after, out)
    out.document(Watched(**msgspec.structs.asdict(run), events=events))
    human.print_what_next(out, run)
    return exit_of(run)


async def follow(sf: Surefoot, run_id: str, after: int, out: Output) -> tuple[RunSnapshot, list[RunEvent]]:
    """Tell a run's story as it happens, on stdout for people and on stderr with --json. Raises NotFound."""
    told: list[RunEvent] = []
    while True:
        seen = sf.store.change_count()
        run = await sf.snapshot(run_id, out.language)
        while page := await sf.store.events(sf.tenant, run_id, after, EVENTS_PAGE):
            told += [public_event(line) for line in page]
            after = page[-1].sequence
            for line in await story(sf, told[-len(page) :], out.language):
                (out.note if out.as_json else out.line)(line)
        if at_rest(run) and run.last_event_sequence <= after:
            return await sf.snapshot(run_id, out.language), told
        await sf.store.changed(seen, WAIT_SECONDS)


async def story(sf: Surefoot, events: list[RunEvent], language: str) -> list[str]:
    """Events of one run as lines, those of interest."""
    steps = {row.step.id: row.step for row in await sf.store.steps(sf.tenant, events[0].run_id)}
    texts = {name: tool.display for name, tool in sf.context.registry.tools.items()}
    lines = [(event, event_line(event, steps, language, texts)) for event in events]
    return [human.timed(event, line) for event, line in lines if line is not None]


def exit_of(run: RunSnapshot) -> int:
    """The exit code of a wait: completed, ended otherwise, or waiting for a person."""
    if run.status == "completed":
        return DONE
    return RUN_FAILED if run.status in human.ENDED else WAITS_FOR_A_PERSON


async def message(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """A message of the user; it takes its place once every open call has its result."""
    async with opened(settings, out) as sf:
        await sf.message(found.id, given_text(found.text), by=person(found))
        run = await sf.snapshot(found.id, out.language)
    out.document(run)
    out.line(f"{run.id}  the message is written down; the agent sees it before its next turn")
    return DONE


async def signal(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """A signal of a program; a call that waits for it gets it, or the next one that does."""
    value = None if found.value is None else given_value(found.value)
    async with opened(settings, out) as sf:
        new = await sf.signal(found.id, found.name, value, key=found.key, by=person(found))
        run = await sf.snapshot(found.id, out.language)
    out.document(run)
    out.line(f"{run.id}  {'the signal is written down' if new else 'the signal had come before under this key'}")
    return DONE


async def retry(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Take up a failed or cancelled run in a new run of its conversation; said again, it is the same new run."""
    async with opened(settings, out) as sf:
        made = await sf.retry(found.id, by=person(found))
        run = await sf.snapshot(made.id, out.language)
    out.document(run)
    out.line(f"{run.id}  takes up {found.id}: {run.display.text}")
    out.line(f"  > surefoot runs watch {run.id}")
    return DONE


async def cancel(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Stop a run: from the acknowledgement on nothing is sent; says what may have been sent before."""
    async with opened(settings, out) as sf:
        sent = await sf.cancel(found.id, by=person(found))
        run = await sf.snapshot(found.id, out.language)
        # The runs of agents that worked for it are cancelled with it: their calls are listed too.
        every = [await sf.snapshot(id, out.language) for id in dict.fromkeys(run_of_step(one) for one in sent)]
    steps = [step for one in every for step in one.steps if step.id in sent]
    out.document(Cancelled(run.id, run.status, steps))
    out.line(f"{run.id}  {run.display.text}: nothing more is sent")
    if steps:
        out.line("  may have been sent, and is looked up by any worker:")
        rows = [(str(s.sequence), s.tool_name or s.type, s.operation_key or "", shown(s.display.text)) for s in steps]
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
