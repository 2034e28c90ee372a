"""The World's fault plan: plain data, so that it can be written in a test, sent to a process and printed with a seed.

A `Rule` says which requests are hit and by which fault. All rules that match a request are at work together; where two
of them decide the same thing, the first one wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from surefoot.testing.wire import WireRequest

Drop = Literal["reset", "fin", "hang"]


class Fault(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """Base of the faults; times are in seconds."""


class LostRequest(Fault, frozen=True, tag="lost_request"):
    """The request never takes effect and gets no answer."""

    how: Drop = "reset"


class LostReply(Fault, frozen=True, tag="lost_reply"):
    """The request takes effect; its answer is lost."""

    how: Drop = "reset"


class StatusBefore(Fault, frozen=True, tag="status_before"):
    """Answered with `status` and without effect. `body` None gives GitHub's error shape.

    `echo_authorization` puts the request's Authorization into the body and a header, as careless servers do.
    """

    status: int
    headers: Mapping[str, str] = {}
    body: object = None
    echo_authorization: bool = False


class StatusAfter(Fault, frozen=True, tag="status_after"):
    """The request takes effect and is then answered with `status`."""

    status: int
    headers: Mapping[str, str] = {}
    body: object = None
    echo_authorization: bool = False


class Hang(Fault, frozen=True, tag="hang"):
    """No answer: the connection stays open for `seconds` (None: until the client leaves) and is then closed.

    `applied` says whether the request took effect when it arrived.
    """

    seconds: float | None = None
    applied: bool = False


class ResetMidBody(Fault, frozen=True, tag="reset_mid_body"):
    """The request takes effect; the connection breaks after `after_bytes` bytes of the reply's body."""

    after_bytes: int = 20
    how: Literal["reset", "fin"] = "reset"


class Delay(Fault, frozen=True, tag="delay"):
    """The request takes effect at once and is answered `seconds` later."""

    seconds: float


class Late(Fault, frozen=True, tag="late"):
    """The request is on its way for `seconds` more and takes effect then.

    `answer` is what its sender gets meanwhile: a dropped connection, or an HTTP status such as 504.
    """

    seconds: float
    answer: Drop | int = "hang"


class BadJson(Fault, frozen=True, tag="bad_json"):
    """The request takes effect; the answer has its right status and a body that breaks off inside the JSON."""


class EmptyBody(Fault, frozen=True, tag="empty_body"):
    """The request takes effect; the answer has its right status and no body."""


class StaleListing(Fault, frozen=True, tag="stale_listing"):
    """Listings show the comments as they were `seconds` ago: later ones are missing, later deleted ones still there."""

    seconds: float


class StaleCount(Fault, frozen=True, tag="stale_count"):
    """The issue's comment count is the one of `seconds` ago."""

    seconds: float


class OrderChanged(Fault, frozen=True, tag="order_changed"):
    """The order of a listing changes while it is paged through.

    With every further page the list is turned by `shift` places, so that an item at a page's edge is shown twice and
    the newest ones on no page at all. `newest_first` reverses the whole list instead.
    """

    shift: int = 1
    newest_first: bool = False


class Change(Fault, frozen=True, tag="change"):
    """Somebody acts just before the request is handled: any change that `World.change` knows, with its arguments."""

    action: str
    arguments: Mapping[str, object] = {}


AnyFault = (
    LostRequest
    | LostReply
    | StatusBefore
    | StatusAfter
    | Hang
    | ResetMidBody
    | Delay
    | Late
    | BadJson
    | EmptyBody
    | StaleListing
    | StaleCount
    | OrderChanged
    | Change
)


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which requests a fault hits.

    In `path`, `*` stands for anything within one segment and `**` for anything at all. Of the requests that match,
    those from the `nth` (counted from 1) on are hit, `times` of them (None: all). `since` and `until` are times of the
    World's clock; `lasting` ends the fault so many seconds after its first hit.
    """

    fault: AnyFault
    method: str = "*"
    path: str = "**"
    query: Mapping[str, str] = {}
    account: str | None = None
    body_contains: str | None = None
    nth: int = 1
    times: int | None = 1
    since: float | None = None
    until: float | None = None
    lasting: float | None = None


class FaultPlan:
    """The rules in force and how often each has matched. Deterministic: no chance, no clock of its own."""

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self._rules: list[_Armed] = [_Armed(rule) for rule in rules]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in the order in which they were added."""
        return tuple(armed.rule for armed in self._rules)

    def add(self, rule: Rule) -> None:
        """One more rule; its count starts now."""
        self._rules.append(_Armed(rule))

    def clear(self) -> None:
        """The world is well again."""
        self._rules.clear()

    def hits(self, request: WireRequest, account: str | None, now: float) -> tuple[AnyFault, ...]:
        """The faults that hit this request; counts it for every rule that matches."""
        return tuple(armed.rule.fault for armed in self._rules if armed.hit(request, account, now))


class _Armed:
    """A rule with its count."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._matched = 0
        self._first_hit: float | None = None

    def hit(self, request: WireRequest, account: str | None, now: float) -> bool:
        rule = self.rule
        if not (_in_time(rule, now) and _matches(rule, request, account)):
            return False
        if self._first_hit is not None and rule.lasting is not None and now >= self._first_hit + rule.lasting:
            return False
        self._matched += 1
        if self._matched < rule.nth or (rule.times is not None and self._matched >= rule.nth + rule.times):
            return False
        if self._first_hit is None:
            self._first_hit = now
        return True


def path_matches(pattern: str, path: str) -> bool:
    """Whether `path` fits a pattern as in Rule."""
    return _pattern(pattern).fullmatch(path) is not None


def _in_time(rule: Rule, now: float) -> bool:
    return (rule.since is None or now >= rule.since) and (rule.until is None or now < rule.until)


def _matches(rule: Rule, request: WireRequest, account: str | None) -> bool:
    return (
        rule.method in ("*", request.method)
        and path_matches(rule.path, request.path)
        and rule.query.items() <= request.query.items()
        and (rule.account is None or rule.account == account)
        and (rule.body_contains is None or rule.body_contains.encode() in request.body)
    )


@lru_cache(maxsize=256)
def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", path)
    return re.compile("".join({"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts))
