"""Was it created? Three answers, and the middle one, Absent, has to be earned. What all lookups by marker share, and
the one for comments.

Found: a comment of our account, at our place, with our marker and a MAC that fits. Time is no reason to reject it, nor
is the repository's or the issue's own record where that cannot be read: an absence needs those.
Absent: the account is known, the repository is the one that was named, every page of comments was read, what was listed
agrees with the issue's own count before and after, nothing stands there that could be ours, and no comment was deleted
in the window, as far as GitHub shows it. Everything else is Undetermined, with a reason:

    account_unknown    GitHub does not say whose the token is: set SUREFOOT_GITHUB_ACCOUNT
    account_changed    a comment of another account carries our marker, with a MAC made for that account or for none
    marker_altered     our account's comment holds our key, but its MAC does not fit
    marker_missing     our account's comment, made in the window, has the same text without any marker (of an issue,
                       the same title)
    edited             our account's comment, made in the window, was edited since and holds no marker any more
    not_submitted      our account's review with our marker was begun and not submitted
    count_mismatch     the listing and the issue's count disagree: one of them is stale
    deletion_seen      a comment of this issue was deleted in the window
    listing_changed    two readings of several pages disagree
    too_many_gaps, number_unreadable
                       issues, which GitHub does not count: see there
    moved, not_found, gone, unauthorized, forbidden, rate_limited, refused, server_error, timeout, unreachable,
    bad_json, not_whole, cached, too_many_pages
                       a request did not end in a 200 of now that can be read; moved also where another repository has
                       the name since

With `rate_limited`, the coverage holds `retry_after_seconds`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from surefoot.connectors.github_api import (
    Account,
    BadAnswer,
    GitHub,
    TooManyPages,
    check_place,
    number_in,
    object_in,
    place_of,
    text_in,
)
from surefoot.core.marker import REMOVED, encode_key, strip_namespace
from surefoot.effects import Absent, Found, InDoubt, NotSent, Operation, Receipt, Refused, Undetermined, Verdict
from surefoot.http import TimedOut

T = TypeVar("T")

_REASONS = {301: "moved", 302: "moved", 307: "moved", 308: "moved"}
_REASONS |= {401: "unauthorized", 403: "forbidden", 404: "not_found", 410: "gone"}
_UNREAD = frozenset({"bad_json", "not_whole", "cached", "server_error"})
"""Reasons that say of one answer that it cannot be read, and nothing of the place."""
_MARKER = re.compile(r"(?m)^[^\S\n]*<!-- agent-operation:([A-Za-z0-9_.:%]+) k=[0-9a-f]{8} mac=[0-9a-f]+ -->[^\S\n]*$")


class Stop(Exception):
    """The lookup cannot go on: its reason, and how long to wait where GitHub says so."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after


class Comment(msgspec.Struct, frozen=True):
    """What counts of a comment."""

    id: int
    url: str
    body: str
    author_id: int | None
    created_at: float
    edited: bool = False
    submitted: bool = True


async def find_issue_comment(op: Operation, repo: str, issue_number: int, body: str) -> Verdict:
    """Look for the comment of `op` on an issue or pull request. Reads only; raises InvalidInput for a bad place."""
    check_place(repo, issue_number)
    return await _Search(op, repo, issue_number, body).verdict()


class MarkerSearch:
    """One lookup by marker: what it has seen so far. `_search` reads the listing of its kind."""

    def __init__(self, op: Operation, repo: str, place: str, body: str) -> None:
        self.op = op
        self.repo = repo
        self.place = place
        self.text = plain(body)
        # GitHub's times are whole seconds: a comment made in the window's first second belongs to it.
        self.window_start = float(int(op.search_from))
        self.hits: dict[int, Receipt] = {}
        self.doubts: list[str] = []
        self.coverage: dict[str, object] = {"place": self.place}
        self._unread: Stop | None = None

    async def verdict(self) -> Verdict:
        """Look. What was found counts, whatever stops the look later; without a hit a stop is Undetermined."""
        try:
            return await self._run()
        except Stop as stop:
            if self.hits:
                return self.found()
            return undetermined(stop, self.coverage)

    async def _run(self) -> Verdict:
        try:
            async with GitHub(self.op) as github:
                return await self._look(github)
        except (Refused, InDoubt, NotSent, BadAnswer, TooManyPages) as exc:
            raise stop_of(exc) from None

    def found(self) -> Found:
        """The hits: the oldest is the effect, the others are its doubles."""
        receipts = [self.hits[number] for number in sorted(self.hits)]
        return Found(receipts[0], also=tuple(receipts[1:]), coverage=dict(self.coverage))

    async def _look(self, github: GitHub) -> Verdict:
        account = await github.account()
        if account is None:
            raise Stop("account_unknown")
        self.coverage["account"] = f"{account.login}:{account.id}"
        await self._beside(check_repo(github, self.op, self.repo))
        return await self._search(github, account)

    async def _search(self, github: GitHub, account: Account) -> Verdict:
        raise NotImplementedError

    async def _beside(self, asking: Awaitable[T]) -> T | None:
        """Ask what an absence takes and a hit does not: the listing is read also where this answer cannot be."""
        try:
            return await asking
        except (BadAnswer, InDoubt) as exc:
            stop = stop_of(exc)
            if stop.reason not in _UNREAD:
                raise
            self._unread = self._unread or stop
            return None

    def _readable(
        self, items: Iterable[Mapping[str, object]], read: Callable[[Mapping[str, object]], Comment]
    ) -> Iterator[Comment]:
        """The entries that can be read. One that cannot takes the absence away, and not the hit beside it."""
        for item in items:
            try:
                comment = read(item)
            except BadAnswer as exc:
                self._unread = self._unread or stop_of(exc)
            else:
                yield comment

    def _hit(self) -> Found | None:
        """What the listing shows. Raises Stop where it shows nothing and what was asked beside it was not answered."""
        if self.hits:
            return self.found()
        if self._unread is not None:
            raise self._unread
        return None

    def _judge(self, comment: Comment, account: Account) -> None:
        """A stranger's comment counts for nothing, whatever it holds, unless only our key can have made its marker."""
        # A marker without account was signed while the account was not known yet.
        scans = {self._scan(comment, name) for name in (str(comment.author_id), "")}
        if comment.author_id != account.id:
            if comment.author_id is not None and "ours" in scans:
                self.doubts.append("account_changed")
            return
        if "ours" in scans:
            if comment.submitted:
                self.hits[comment.id] = receipt_of(comment.id, comment.url)
            else:
                self.doubts.append("not_submitted")
        elif "forged" in scans:
            self.doubts.append("marker_altered")
        elif comment.created_at >= self.window_start and not self._of_others(comment.body):
            if self._same_text(comment.body):
                self.doubts.append("marker_missing")
            elif comment.edited:
                self.doubts.append("edited")

    def _scan(self, comment: Comment, account: str) -> str:
        return self.op.scan(comment.body, place=self.place, account=account)

    def _of_others(self, body: str) -> bool:
        """With another operation's marker it is that operation's comment."""
        return any(key != encode_key(self.op.key) for key in _MARKER.findall(body))

    def _same_text(self, body: str) -> bool:
        return plain(body) == self.text


class _Search(MarkerSearch):
    """The lookup of a comment."""

    def __init__(self, op: Operation, repo: str, number: int, body: str) -> None:
        super().__init__(op, repo, place_of(repo, number), body)
        self.path = f"/repos/{repo}/issues/{number}"

    async def _search(self, github: GitHub, account: Account) -> Verdict:
        before = self.coverage["count_before"] = await self._beside(self._count(github))
        listed = await self._read_comments(github, account)
        if (found := self._hit()) is not None:
            return found
        if self.coverage["pages"] != 1 and await self._read_comments(github, account) != listed:
            # One that was deleted while the pages were read moves another one past them, and a new one fills its place.
            raise Stop("listing_changed")
        if (found := self._hit()) is not None:
            return found
        after = self.coverage["count_after"] = await self._count(github)
        if self.doubts:
            raise Stop(self.doubts[0])
        if not before == len(listed) == after:
            raise Stop("count_mismatch")
        await self._check_deletions(github)
        return Absent(coverage=dict(self.coverage))

    async def _count(self, github: GitHub) -> int:
        issue = await github.read(self.path)
        if f"/{number_in(issue, 'number')}" != self.path[self.path.rindex("/") :]:
            raise Stop("moved")
        return number_in(issue, "comments")

    async def _read_comments(self, github: GitHub, account: Account) -> set[int]:
        """Read every page, also after a hit, so that doubles are seen. The ids of the comments."""
        ids: set[int] = set()
        pages = 0
        async for page in github.pages(f"{self.path}/comments"):
            pages += 1
            for comment in self._readable(page, comment_in):
                ids.add(comment.id)
                self._judge(comment, account)
            self.coverage |= {"pages": pages, "listed": len(ids)}
        return ids

    async def _check_deletions(self, github: GitHub) -> None:
        async for page in github.pages(f"{self.path}/events"):
            for event in page:
                if event.get("event") == "comment_deleted" and seconds_in(event) >= self.window_start:
                    raise Stop("deletion_seen")


def receipt_of(number: int, url: str) -> Receipt:
    """What is kept of a comment: its id and its link."""
    return Receipt(resource_id=str(number), url=url or None, output={"id": number, "url": url})


async def check_repo(github: GitHub, op: Operation, repo: str) -> None:
    """The repository is the one that was named and sent to. Raises Stop, BadAnswer.

    A renamed one answers under its old name too, until another one gets that name: it was made after our send then.
    """
    found = await github.read(f"/repos/{repo}")
    if not (name := text_in(found, "full_name")):
        raise BadAnswer("full_name is no text")
    if name.lower() != repo.lower():
        raise Stop("moved")
    sent_at = op.search_from if op.first_sent_at is None else op.first_sent_at
    if found.get("created_at") is not None and seconds_in(found) > sent_at:
        raise Stop("moved")


def undetermined(stop: Stop, coverage: Mapping[str, object]) -> Undetermined:
    """What a lookup that was stopped answers."""
    wait = {} if stop.retry_after is None else {"retry_after_seconds": stop.retry_after}
    return Undetermined(stop.reason, coverage={**coverage, **wait})


def stop_of(exc: Exception) -> Stop:
    """The reason for which a request of a lookup ends it."""
    match exc:
        case BadAnswer(reason=reason):
            return Stop(reason)
        case TooManyPages():
            return Stop("too_many_pages")
        case TimedOut():
            return Stop("timeout")
        case Refused(retry_after=float(wait)):
            return Stop("rate_limited", wait)
        case Refused(status=status):
            return Stop(_REASONS.get(status or 0, "refused"))
        case InDoubt(status=int()):
            return Stop("server_error")
        case _:
            return Stop("unreachable")


def comment_in(item: Mapping[str, object]) -> Comment:
    """A comment of a listing. Raises BadAnswer."""
    user = object_in(item, "user")
    # Time is no reason to reject a hit: what has none counts as made just now, and as edited since.
    timed = item.get("created_at") is not None
    created_at = seconds_in(item) if timed else math.inf
    return Comment(
        id=number_in(item, "id"),
        url=text_in(item, "html_url"),
        body=text_in(item, "body"),
        author_id=number_in(user, "id") if user else None,
        created_at=created_at,
        edited=not timed or (item.get("updated_at") is not None and seconds_in(item, "updated_at") > created_at),
    )


def seconds_in(item: Mapping[str, object], name: str = "created_at") -> float:
    """A time of a reply, in seconds since 1970. Raises BadAnswer."""
    try:
        at = datetime.fromisoformat(text_in(item, name))
    except ValueError:
        raise BadAnswer(f"{name} is no time") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def plain(text: str) -> str:
    """A text without markers and without the differences that storing and editing make to blanks."""
    return " ".join(strip_namespace(text).replace(REMOVED, "").split())
