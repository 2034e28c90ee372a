"""What GitHub tells us by itself: a comment with our marker settles the step that made it, before any lookup.

A webhook is evidence as a lookup's answer is: the comment's author is our account, and the marker's MAC fits the place
and that account. Anything else changes nothing. So a repeat is harmless: what is known already is not written again,
and a body that was dealt with is not read twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from surefoot.app import Surefoot
from surefoot.connectors.github_api import place_of
from surefoot.core.marker import keys_in
from surefoot.effects import Found, Receipt
from surefoot.store.port import StepRow

Outcome = Literal["settled", "known", "repeated", "ignored", "too_old"]
AGE_SECONDS_MAX = 3 * 86_400.0
"""GitHub sends a delivery again for three days. What is older is left to lookups."""
MARKERS_MAX = 20


class User(msgspec.Struct, frozen=True):
    """Who wrote a comment."""

    id: int
    login: str = ""


class Comment(msgspec.Struct, frozen=True):
    """What counts of a comment."""

    id: int
    body: str
    user: User
    created_at: str
    html_url: str = ""


class Issue(msgspec.Struct, frozen=True):
    """Where it stands."""

    number: int


class Repository(msgspec.Struct, frozen=True):
    """Where the issue is."""

    full_name: str


class CommentEvent(msgspec.Struct, frozen=True):
    """An `issue_comment` delivery; the rest of it is not read."""

    action: str
    comment: Comment
    issue: Issue
    repository: Repository


async def take_delivery(tenants: Iterable[Surefoot], event: str, raw: bytes) -> Outcome:
    """Deal with a delivery whose signature was checked. Said again, it is `repeated`. Raises StoreError.

    Looked at for each tenant: the MAC says whose the marker is. Raises msgspec.ValidationError for a body that is no
    such event, msgspec.DecodeError for one that is no JSON.
    """
    if event != "issue_comment":
        return "ignored"
    told = msgspec.json.decode(raw, type=CommentEvent)
    keys = list(dict.fromkeys(keys_in(told.comment.body)))[:MARKERS_MAX]
    if told.action != "created" or not keys:
        return "ignored"
    seen = hashlib.sha256(raw).hexdigest()
    outcomes = [await _for_tenant(sf, told, keys, seen) for sf in tenants]
    order: tuple[Outcome, ...] = ("settled", "known", "repeated", "too_old", "ignored")
    return next(outcome for outcome in order if outcome in outcomes or outcome == "ignored")


async def _for_tenant(sf: Surefoot, told: CommentEvent, keys: list[str], seen: str) -> Outcome:
    if await sf.store.marked(sf.tenant, "github", seen) is not None:
        return "repeated"
    if sf.doors.clock.now().wall - _seconds(told.comment.created_at) > AGE_SECONDS_MAX:
        return "too_old"
    outcome: Outcome = "ignored"
    for key in keys:
        row = await sf.store.step_by_key(sf.tenant, key)
        if row is None or not _is_ours(sf, row, told):
            continue
        new = await sf.report(key, _found(told), source="webhook")
        outcome = "settled" if new else outcome if outcome == "settled" else "known"
    if outcome != "ignored":
        # Behind the report: a process that ends between the two deals with it once more, and nothing changes.
        await sf.store.mark(sf.tenant, "github", seen, outcome)
    return outcome


def _is_ours(sf: Surefoot, row: StepRow, told: CommentEvent) -> bool:
    """Our account wrote it, and the marker is of this step at this place."""
    author = str(told.comment.user.id)
    accounts = {attempt.account for attempt in row.step.attempts if attempt.account}
    if any(account.rpartition(":")[2] != author for account in accounts):
        return False
    op = sf.context.operation(row.run_id, row.step, None)
    place = place_of(told.repository.full_name, told.issue.number)
    if op.matches(told.comment.body, place=place, account=author):
        return True
    # Signed while the account was not known: it counts once an attempt says which account it was.
    return bool(accounts) and op.matches(told.comment.body, place=place, account="")


def _found(told: CommentEvent) -> Found:
    comment = told.comment
    receipt = Receipt(
        resource_id=str(comment.id), url=comment.html_url or None, output={"id": comment.id, "url": comment.html_url}
    )
    place = place_of(told.repository.full_name, told.issue.number)
    return Found(receipt, coverage={"webhook": "issue_comment", "place": place, "author": comment.user.login})


def _seconds(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
