"""What GitHub tells us by itself: a delivery that proves an effect settles its step, before any lookup.

A webhook is evidence as a lookup's answer is, and is believed for the same reasons. A new comment, review or issue of
our account carries our marker, whose MAC fits the place and that account. A merge, a close or a label has no marker:
it counts for a step in doubt whose call asks for exactly that state of that place. Anything else changes nothing. So a
repeat is harmless: what is known already is not written again, and a body that was dealt with is not read twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec

from surefoot.app import Surefoot
from surefoot.core.marker import keys_in
from surefoot.core.redact import safe_error
from surefoot.core.state import Step
from surefoot.effects import Found, Receipt
from surefoot.server.deliveries import Delivery, Made, Shown, made_by, shown_by
from surefoot.store.listed import ODD
from surefoot.store.port import StepRow
from surefoot.store.requests import request

Outcome = Literal["settled", "known", "repeated", "ignored", "too_old"]
EVENTS = ("issue_comment", "pull_request_review", "issues", "pull_request")
"""Those that a hook on GitHub should send."""
AGE_SECONDS_MAX = 3 * 86_400.0
"""GitHub sends a delivery again for three days. What is older is left to lookups."""
MARKERS_MAX = 20
STEPS_MAX = 100
"""So many calls whose outcome is unknown are looked at of one place; lookups find the others."""


async def take_delivery(tenants: Iterable[Surefoot], event: str, raw: bytes) -> Outcome:
    """Deal with a delivery whose signature was checked. Said again, it is `repeated`. Raises StoreError.

    Looked at for each tenant: the MAC says whose the marker is. Raises msgspec.ValidationError for a body that is no
    such event, msgspec.DecodeError for one that is no JSON.
    """
    if event not in EVENTS:
        return "ignored"
    told = msgspec.json.decode(raw, type=Delivery)
    made, shown = made_by(event, told), shown_by(event, told)
    keys = [] if made is None else list(dict.fromkeys(keys_in(made.text)))[:MARKERS_MAX]
    if not keys and shown is None:
        return "ignored"
    seen = hashlib.sha256(raw).hexdigest()
    outcomes: list[Outcome] = []
    for sf in tenants:
        if await sf.store.marked(sf.tenant, "github", seen) is not None:
            outcomes.append("repeated")
            continue
        calls = _Calls(sf)
        outcomes.append(await _by_marker(calls, made, keys) if made is not None else await _by_place(calls, shown))
        if outcomes[-1] in ("settled", "known") and not calls.unreadable:
            # Behind the report: a process that ends between the two deals with it once more, and nothing changes.
            await sf.store.mark(sf.tenant, "github", seen, outcomes[-1])
    order: tuple[Outcome, ...] = ("settled", "known", "repeated", "too_old", "ignored")
    return next(outcome for outcome in order if outcome in outcomes or outcome == "ignored")


class _Calls:
    """The calls of one tenant that a delivery may be about, each dealt with by itself."""

    def __init__(self, sf: Surefoot) -> None:
        self.sf = sf
        self.unreadable = False
        """One of them could not be read: the same delivery may be sent again once it is mended."""

    @contextmanager
    def each(self, name: str) -> Iterator[None]:
        """What cannot be read of one call keeps no other from being settled."""
        try:
            yield
        except ODD as problem:
            self.unreadable = True
            self.sf.context.log(f"webhook: {name} cannot be read ({safe_error(problem, self.sf.redactor)})")


def _too_old(sf: Surefoot, at: float) -> bool:
    return sf.doors.clock.now().wall - at > AGE_SECONDS_MAX


async def _report(sf: Surefoot, key: str, found: Found, before: Outcome) -> Outcome:
    new = await sf.report(key, found, source="webhook")
    return "settled" if new or before == "settled" else "known"


# A text with a marker


async def _by_marker(calls: _Calls, made: Made, keys: list[str]) -> Outcome:
    sf = calls.sf
    if _too_old(sf, made.at):
        return "too_old"
    outcome: Outcome = "ignored"
    coverage = {"webhook": made.event, "place": made.place, "author": made.author.login}
    for key in keys:
        with calls.each(key):
            row = await sf.store.step_by_key(sf.tenant, key)
            if row is not None and _is_ours(sf, row, made):
                outcome = await _report(sf, key, Found(made.receipt, coverage=coverage), outcome)
    return outcome


def _is_ours(sf: Surefoot, row: StepRow, made: Made) -> bool:
    """Our account wrote it, and the marker is of this step at this place."""
    author = str(made.author.id)
    if not _may_be_of(row.step, author):
        return False
    op = sf.context.operation(row.run_id, row.step, None)
    # GitHub tells the repository's name as its owner wrote it, the marker covers it as the call did.
    asked = row.step.target or ""
    place = asked if asked.casefold() == made.place.casefold() else made.place
    if op.matches(made.text, place=place, account=author):
        return True
    # Signed while the account was not known: it counts once an attempt says which account it was.
    return bool(_accounts(row.step)) and op.matches(made.text, place=place, account="")


def _accounts(step: Step) -> set[str]:
    return {attempt.account.rpartition(":")[2] for attempt in step.attempts if attempt.account}


def _may_be_of(step: Step, author: str) -> bool:
    return all(account == author for account in _accounts(step))


# A state that a call asks for


async def _by_place(calls: _Calls, shown: Shown | None) -> Outcome:
    sf = calls.sf
    if shown is None:
        return "ignored"
    if _too_old(sf, shown.at):
        return "too_old"
    outcome: Outcome = "ignored"
    coverage = {"webhook": shown.event, "place": shown.place, "by": shown.by.login}
    # Also those of a run that has ended, or that were given up.
    for step_id in await sf.store.unknown_at(sf.tenant, shown.place, STEPS_MAX):
        with calls.each(step_id):
            step = (await sf.store.step(sf.tenant, step_id)).step
            receipt = await _asked_for(sf, step, shown) if step.doubtful_attempts else None
            if receipt is not None:
                outcome = await _report(sf, step.operation_key, Found(receipt, coverage=coverage), outcome)
    return outcome


async def _asked_for(sf: Surefoot, step: Step, shown: Shown) -> Receipt | None:
    """The receipt of this call, if what is shown is exactly what it asks for; as its tool would give it."""
    data = await request(sf.store, sf.tenant, step.id)
    arguments = msgspec.json.decode(data, type=dict[str, object])
    match step.tool_name:
        case "merge_pull_request" if shown.merged_head is not None and shown.merged_head == arguments.get("head_sha"):
            # A head is merged once, whoever asked for it: so the tool's own look has it.
            output = {"merged": True, "sha": shown.merge_sha}
            return Receipt(resource_id=shown.merge_sha, url=shown.url or None, output=output)
        case "close_issue" if shown.closed and _by_us(step, shown):
            made = {"number": shown.number, "state": "closed", "url": shown.url}
            return Receipt(resource_id=str(shown.number), url=shown.url or None, output=made)
        case "add_labels" if _by_us(step, shown) and _labels(arguments) <= {n.casefold() for n in shown.labels}:
            return Receipt(resource_id=shown.place, output={"labels": list(shown.labels)})
        case _:
            return None


def _by_us(step: Step, shown: Shown) -> bool:
    """Our account did it, and not before the call began: what somebody else does to the place is not our effect."""
    began = min(attempt.started.wall for attempt in step.attempts)
    # GitHub's times are whole seconds, by another clock.
    return str(shown.by.id) in _accounts(step) and _may_be_of(step, str(shown.by.id)) and shown.at >= int(began) - 1


def _labels(arguments: dict[str, object]) -> set[str]:
    labels = arguments.get("labels")
    return {str(name).casefold() for name in labels} if isinstance(labels, list) else {""}
