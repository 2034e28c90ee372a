"""surefoot export: what the store keeps of a tenant's runs, as a stream of records. docs/operate.md has its form."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import msgspec

from surefoot.app import Surefoot
from surefoot.cli.output import DONE, REFUSED, Output, exit_code, shown
from surefoot.cli.session import entered, opened
from surefoot.cli.settings import Settings
from surefoot.errors import InvalidInput, NotFound, StoreUnavailable, SurefootError, Unreadable
from surefoot.snapshot import action_view, iso, message_view, public_event
from surefoot.store.port import EvidenceRow
from surefoot.views import EVENTS_PAGE

FORMAT = "surefoot-export"
FORMAT_VERSION = 1
PAGE = 200
"""Rows that are read at once: what is held of a store, however large it is."""

Write = Callable[[str], None]


class Record(msgspec.Struct, frozen=True):
    """One record and its kind: begin, run, event, message, action, evidence, unreadable or end."""

    record: str
    run_id: str | None
    value: object


class Begin(msgspec.Struct, frozen=True):
    """The first record: what this is, and what was asked for."""

    format: str
    version: int
    surefoot: str
    tenant: str
    at: str
    run_ids: list[str]
    status: str | None
    since: str | None


class End(msgspec.Struct, frozen=True):
    """The last record; a stream without it was cut off. `error` has the code of what ended it before its time."""

    runs: int
    unreadable: int
    error: str | None = None


class Exported(msgspec.Struct, frozen=True):
    """What was written to a file."""

    file: str
    runs: int
    unreadable: int


class Problem(msgspec.Struct, frozen=True):
    """Why a run, or the rest of it, is not there."""

    code: str
    message: str


class Evidence(msgspec.Struct, frozen=True):
    """Evidence about a step as it is stored, with all that its source said."""

    step_id: str
    attempt: int | None
    verdict: str
    source: str
    reason: str | None
    resource_id: str | None
    url: str | None
    detail: object
    at: str


async def export(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Write the chosen runs to stdout or to a new file. Raises NotFound before anything is written, StoreError."""
    path = None if found.output is None else Path(found.output)
    if path is not None:
        _refuse_place(path)
    sf = await entered(opened(settings, out), settings, out)
    try:
        for run_id in found.id:
            with suppress(Unreadable):
                await sf.store.run(sf.tenant, run_id)
        return await _to_stdout(sf, found, out) if path is None else await _to_file(sf, found, path, out)
    finally:
        await sf.close()


async def _to_stdout(sf: Surefoot, found: argparse.Namespace, out: Output) -> int:
    """Records as lines, or with --json as the items of one array, which is closed also where the store fails."""
    stream = _Stream(sf, found, _Items(out.piece).item if out.as_json else lambda text: out.piece(text + "\n"))
    try:
        code = _exit(await stream.write(), out)
    except SurefootError as problem:
        stream.end(problem.code)
        out.note(f"surefoot: {shown(sf.redactor.text(str(problem)))}; the export is not whole")
        code = exit_code(problem)
    if out.as_json:
        out.piece("\n]\n")
    return code


async def _to_file(sf: Surefoot, found: argparse.Namespace, path: Path, out: Output) -> int:
    with _new_file(path) as write:
        end = await _Stream(sf, found, lambda text: write(text + "\n")).write()
    out.document(Exported(str(path), end.runs, end.unreadable))
    out.line(f"{shown(path)} has {end.runs} run{'' if end.runs == 1 else 's'}")
    return _exit(end, out)


def _exit(end: End, out: Output) -> int:
    if end.unreadable:
        out.note(f"surefoot: {end.unreadable} of the runs cannot be read; see `surefoot doctor`")
    return REFUSED if end.unreadable else DONE


class _Items:
    """The items of a JSON array, one a line."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._before = "[\n"

    def item(self, text: str) -> None:
        """The next item."""
        self._write(self._before + text)
        self._before = ",\n"


class _Stream:
    """One export: the records in their order, redacted by the secrets that this process knows."""

    def __init__(self, sf: Surefoot, found: argparse.Namespace, write: Write) -> None:
        self._sf = sf
        self._found = found
        self._write = write
        self._runs = 0
        self._unreadable = 0

    async def write(self) -> End:
        """All records, from `begin` to `end`. Raises StoreError, NotFound for a run that was named and is gone."""
        sf, found = self._sf, self._found
        now = iso(sf.doors.clock.now().wall) or ""
        asked = (found.id, found.status, iso(found.since))
        self._put("begin", None, Begin(FORMAT, FORMAT_VERSION, version("surefoot"), sf.tenant, now, *asked))
        async for run_id in self._chosen():
            await self._run(run_id)
        return self.end(None)

    def end(self, error: str | None) -> End:
        """The last record."""
        end = End(self._runs, self._unreadable, error)
        self._put("end", None, end)
        return end

    async def _chosen(self) -> AsyncIterator[str]:
        """The ids of the runs, newest first, or as they were named."""
        sf, found = self._sf, self._found
        # Ids alone, as the doctor has them: in a page of whole rows the first that cannot be read ends all.
        for run_id in dict.fromkeys(found.id) or reversed(await sf.store.run_ids(sf.tenant)):
            try:
                row = await sf.store.run(sf.tenant, run_id)
            except Unreadable:
                yield run_id  # whatever was asked for: nobody can say that it is not that one
                continue
            except NotFound:
                if found.id:
                    raise
                continue  # it was pruned meanwhile
            if self._wanted(row.run.status.value, row.created_at):
                yield run_id

    def _wanted(self, status: str, created_at: float) -> bool:
        found = self._found
        return found.status in (None, status) and (found.since is None or created_at >= found.since)

    async def _run(self, run_id: str) -> None:
        try:
            await self._all_of(run_id)
        except NotFound:
            return  # it was pruned meanwhile
        except Unreadable as problem:
            self._put_unreadable(run_id, problem.code, str(problem))
        except (SurefootError, OSError):
            raise  # nothing about this run: the store, or where this is written to, is gone
        except Exception as problem:
            # A row that nobody could have foreseen is one run's, and ends no export.
            self._put_unreadable(run_id, Unreadable.code, f"run {run_id} cannot be shown ({type(problem).__name__})")
        else:
            self._runs += 1

    def _put_unreadable(self, run_id: str, code: str, message: str) -> None:
        self._unreadable += 1
        self._put("unreadable", run_id, Problem(code, message))

    async def _all_of(self, run_id: str) -> None:
        sf = self._sf
        snapshot = await sf.snapshot(run_id)
        self._put("run", run_id, snapshot)
        after = 0
        # Up to the snapshot: of a run that goes on meanwhile, both tell of the same moment.
        while page := await sf.store.events(sf.tenant, run_id, after, EVENTS_PAGE):
            after = page[-1].sequence
            for line in page:
                if line.sequence <= snapshot.last_event_sequence:
                    self._put("event", run_id, public_event(line))
            if after >= snapshot.last_event_sequence:
                break
        await self._messages(run_id, snapshot.conversation_id)
        await self._actions(run_id)
        for row in await sf.store.evidence(sf.tenant, run_id):
            self._put("evidence", run_id, _evidence(row))

    async def _messages(self, run_id: str, conversation_id: str) -> None:
        """The messages that came with this run, then those that wait for a place."""
        store, tenant, after = self._sf.store, self._sf.tenant, -1
        while page := await store.messages(tenant, conversation_id, after, PAGE):
            for row in page:
                if row.run_id in (run_id, None):
                    self._put("message", run_id, message_view(row))
                after = after if row.position is None else row.position
        for row in await store.queued(tenant, conversation_id):
            if row.run_id in (run_id, None):
                self._put("message", run_id, message_view(row))

    async def _actions(self, run_id: str) -> None:
        after: str | None = None
        while True:
            page = await self._sf.store.actions(self._sf.tenant, run_id=run_id, after=after, limit=PAGE)
            for row in page.whole():
                self._put("action", run_id, action_view(row))
            if (after := page.behind) is None:
                return

    def _put(self, kind: str, run_id: str | None, value: object) -> None:
        known = self._sf.redactor.value(msgspec.to_builtins(Record(kind, run_id, value)))
        self._write(msgspec.json.encode(known).decode())


def _evidence(row: EvidenceRow) -> Evidence:
    detail: object = msgspec.json.decode(row.detail)
    at = iso(row.created_at) or ""
    where = (row.reason, row.resource_id, row.resource_url)
    return Evidence(row.step_id, row.attempt, row.verdict, row.source, *where, detail, at)


def _refuse_place(path: Path) -> None:
    if os.path.lexists(path):
        raise InvalidInput(
            f"{shown(path)} exists: name another file, or remove it. Without --output it goes to stdout",
            code="output_exists",
        )
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {shown(path.parent)}: make it, or name another", code="wrong_use")


@contextmanager
def _new_file(path: Path) -> Iterator[Write]:
    """A file that is there whole, for its owner alone, or not at all. Raises StoreUnavailable, InvalidInput."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                yield lambda text: (file.write(text), None)[1]
                file.flush()
                os.fsync(file.fileno())
            _refuse_place(path)  # it may have come meanwhile
            beside.rename(path)
            _keep_name(path.parent)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as problem:
        raise StoreUnavailable(
            f"{shown(path)} cannot be written ({problem.strerror}): nothing is there; make room or name another place",
            code="output_unavailable",
        ) from None


def _keep_name(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
