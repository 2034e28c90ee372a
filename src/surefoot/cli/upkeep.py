"""surefoot doctor, prune, db upgrade, db restored."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine

import msgspec

from surefoot.agent.starting import new_id
from surefoot.agent.undoing import hand_over
from surefoot.cli.output import DONE, FINDINGS, Output, shown
from surefoot.cli.session import entered, opened
from surefoot.cli.settings import Settings
from surefoot.doctor import Information, damaged, examine
from surefoot.errors import Unreadable
from surefoot.runtime.restored import count_all_as_sent
from surefoot.store.migrate import migrations

Command = Callable[[argparse.Namespace, Settings, Output], Coroutine[None, None, int]]
DAY_SECONDS = 86_400.0
IDS_SHOWN_MAX = 20


class Pruned(msgspec.Struct, frozen=True):
    """How many records were removed, by kind."""

    removed: dict[str, int]


class Upgraded(msgspec.Struct, frozen=True):
    """The store and the schema that it has now."""

    store: str
    schema: int


async def doctor(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Look for what is wrong; open questions and runs under way are information."""
    try:
        sf = await entered(opened(settings, out), settings, out)
        try:
            report = await examine(sf.store, sf.tenant)
        finally:
            await sf.close()
    except Unreadable as problem:
        report = damaged(settings.store, str(problem))
    out.document(report)
    for finding in report.findings:
        out.line(f"{finding.code}  {finding.run_id or ''}".rstrip())
        out.line(f"  {shown(finding.text)}")
        out.line(f"  > {finding.next}")
    _print_information(out, report.information)
    count = len(report.findings)
    out.line("nothing is wrong" if count == 0 else f"{count} finding{'s' if count > 1 else ''}")
    return FINDINGS if report.findings else DONE


def _print_information(out: Output, information: Information) -> None:
    runs = ", ".join(f"{count} {status}" for status, count in sorted(information.runs.items())) or "none"
    out.line(f"store {shown(information.store)}")
    out.line(f"runs: {runs}")
    for name, ids in (("in doubt", information.in_doubt), ("open questions", information.questions)):
        if ids:
            more = f" and {len(ids) - IDS_SHOWN_MAX} more" if len(ids) > IDS_SHOWN_MAX else ""
            out.line(f"{name}: {', '.join(ids[:IDS_SHOWN_MAX])}{more}")


async def prune(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Remove whole runs that ended long ago, and old exact requests; never what an open question or a look needs."""
    async with opened(settings, out) as sf:
        now = sf.doors.clock.now().wall
        removed = await sf.store.prune(
            sf.tenant,
            now - found.keep_days * DAY_SECONDS,
            blobs_before=now - found.keep_requests_days * DAY_SECONDS,
        )
    out.document(Pruned(dict(removed)))
    gone = [(name, str(count)) for name, count in removed.items() if count]
    out.table(gone or [("nothing is old enough", "")])
    return DONE


async def upgrade(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Create the store or bring it up to date. Raises StoreUnsupported for a newer one."""
    async with opened(settings, out) as sf:
        path = sf.store.path
    schema = migrations("sqlite" if settings.store.startswith("sqlite") else "postgres")[-1].version
    out.document(Upgraded(path, schema))
    out.line(f"{shown(path)} has schema {schema}")
    return DONE


async def restored(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """After a copy of the store was put back: count what it shows as not begun as possibly sent."""
    async with opened(settings, out) as sf:
        answer = await count_all_as_sent(sf.context, new_id(sf.context, "wrk"))
        anew = await hand_over(sf.context)
        answer = msgspec.structs.replace(answer, approvals_to_check=[*answer.approvals_to_check, *anew])
    out.document(answer)
    for title, ids in (
        ("counted as possibly sent", answer.counted_as_sent),
        ("compare with the target before you approve", answer.approvals_to_check),
        ("runs under way: cancel those that may have gone on since the copy", answer.runs_under_way),
        ("cannot be read, and is not executed: see surefoot doctor", answer.unreadable),
    ):
        out.line(f"{title}: {', '.join(ids) or 'none'}")
    return DONE


COMMANDS: dict[str, Command] = {
    "doctor": doctor,
    "prune": prune,
    "db upgrade": upgrade,
    "db restored": restored,
}
