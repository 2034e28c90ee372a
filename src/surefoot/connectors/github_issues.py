"""Issues: open one and find it again; close one and add labels, which may be done again at any time.

GitHub counts no issues of an author, and a listing that is filtered could hide one. But it numbers the issues and pull
requests of a repository one after another. So the lookup reads the newest first, back to before the window, and demands
that no number is missing since and that the next ones are not taken. A number that is missing is asked for by itself: a
pull request is fine; a deleted or moved issue may have been ours, and then nobody can tell any more. A discussion has a
number too and cannot be read here: in a repository with new discussions a person is asked more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from surefoot import effects
from surefoot.agent.tools import ToolCall, tool
from surefoot.connectors.github_api import (
    CREDENTIAL,
    Account,
    BadAnswer,
    GitHub,
    check_place,
    number_in,
    object_in,
    place_of,
    text_in,
)
from surefoot.connectors.github_lookup import Comment, MarkerSearch, Stop, plain, receipt_of, seconds_in
from surefoot.connectors.github_tools import (
    SETTLE_SECONDS,
    TIMEOUT_SECONDS,
    account,
    issue_place_limits,
    issue_target,
    length_fault,
    made_by,
    place_fault,
    refuse,
)
from surefoot.core.marker import strip_namespace
from surefoot.effects import Absent, Operation, Receipt, Verdict
from surefoot.http import Response

TITLE_CHARACTERS_MAX = 256
LABELS_MAX = 100
LABEL_CHARACTERS_MAX = 50
GAPS_MAX = 20
"""So many missing numbers are asked for one by one; with more, nothing is concluded."""
AHEAD = 3
"""So many numbers behind the newest one must not be taken: the first may be a discussion, which cannot be read."""
_NEWEST_FIRST = {"state": "all", "sort": "created", "direction": "desc"}
_TELLS = (301, 302, 307, 308, 404, 410)

Reason = Literal["completed", "not_planned"]


async def find_issue(op: Operation, repo: str, title: str, body: str) -> Verdict:
    """Look for the issue of `op` in a repository. Reads only; raises InvalidInput for a bad place."""
    check_place(repo, 1)
    return await _IssueSearch(op, repo, title, body).verdict()


class _IssueSearch(MarkerSearch):
    """The lookup of an issue; a hit's id is the issue's number, which is how GitHub addresses it."""

    def __init__(self, op: Operation, repo: str, title: str, body: str) -> None:
        super().__init__(op, repo, repo, f"{title}\n\n{body}")
        self.title = plain(title)
        self.numbers: set[int] = set()
        """Every number seen, of issues and pull requests."""
        self.first: int | None = None
        """The lowest number that was given in the window."""
        self.before = 0
        """The newest number that was given before the window; 0 where the repository had none."""

    async def _search(self, github: GitHub, account: Account) -> Verdict:
        await self._read_newest(github, account)
        if (found := self._hit()) is not None:
            return found
        await self._read_missing(github, account)
        if self.hits:
            return self.found()
        if self.doubts:
            raise Stop(self.doubts[0])
        newest = max(self.numbers, default=0)
        for number in range(newest + 1, newest + 1 + AHEAD):
            if (await self._ask(github, "issues", number)).status != 404:
                raise Stop("listing_changed")
        return Absent(coverage=dict(self.coverage))

    async def _read_newest(self, github: GitHub, account: Account) -> None:
        """Newest first, until one is older than the window."""
        pages = 0
        async for page in github.pages(f"/repos/{self.repo}/issues", params=_NEWEST_FIRST):
            pages += 1
            for item in page:
                self._take(item, account)
            self.coverage |= {"pages": pages, "listed": len(self.numbers)}
            if self.before:
                return

    def _take(self, item: Mapping[str, object], account: Account) -> None:
        issue = _issue(item)
        self.numbers.add(issue.id)
        if issue.created_at >= self.window_start:
            self.first = issue.id if self.first is None else min(self.first, issue.id)
        elif not self.before and (self.first is None or issue.id < self.first):
            # The newest of the old ones. An older one with a higher number was moved here: it got that number later.
            self.before = issue.id
        if item.get("pull_request") is None:
            self._judge(issue, account)

    async def _read_missing(self, github: GitHub, account: Account) -> None:
        """Ask for each number that was given since the window opened and that the listing does not show."""
        numbers = range(self.before + 1, max(self.numbers, default=0))
        missing = [number for number in numbers if number not in self.numbers]
        self.coverage["missing"] = len(missing)
        if len(missing) > GAPS_MAX:
            raise Stop("too_many_gaps")
        for number in missing:
            await self._read_one(github, account, number)

    async def _read_one(self, github: GitHub, account: Account, number: int) -> None:
        reply = await self._ask(github, "issues", number)
        if reply.status == 404 and (await self._ask(github, "pulls", number)).status == 200:
            return
        if reply.status != 200:
            raise Stop({404: "number_unreadable", 410: "deletion_seen"}.get(reply.status, "moved"))
        item = reply.json()
        if not isinstance(item, dict):
            raise BadAnswer("not a JSON object")
        self._take(item, account)

    def _same_text(self, body: str) -> bool:
        # GitHub does not say whether an issue's text was edited, and who takes a marker out may change the rest too.
        return plain(body.partition("\n\n")[0]) == self.title

    async def _ask(self, github: GitHub, kind: str, number: int) -> Response:
        return await github.http.get(f"/repos/{self.repo}/{kind}/{number}", allow=_TELLS, reading=True)


def _issue(item: Mapping[str, object]) -> Comment:
    user = object_in(item, "user")
    return Comment(
        id=number_in(item, "number"),
        url=text_in(item, "html_url"),
        body=f"{text_in(item, 'title')}\n\n{text_in(item, 'body')}",
        author_id=number_in(user, "id") if user else None,
        created_at=seconds_in(item),
    )


def _create_limits(arguments: Mapping[str, object]) -> str | None:
    title = str(arguments["title"])
    if not title.strip() or len(title) > TITLE_CHARACTERS_MAX or "\n" in title:
        return f"title is one line of 1 to {TITLE_CHARACTERS_MAX} characters"
    return place_fault(arguments) or length_fault(str(arguments["body"]))


def _label_limits(arguments: Mapping[str, object]) -> str | None:
    labels = arguments["labels"]
    if not isinstance(labels, list) or not 1 <= len(labels) <= LABELS_MAX:
        return f"labels is a list of 1 to {LABELS_MAX} names"
    if not all(isinstance(name, str) and 0 < len(name) <= LABEL_CHARACTERS_MAX for name in labels):
        return f"a label has 1 to {LABEL_CHARACTERS_MAX} characters"
    return issue_place_limits(arguments)


def _without_markers(arguments: Mapping[str, object]) -> Mapping[str, object]:
    texts = {name: strip_namespace(str(arguments[name])) for name in ("title", "body")}
    return {**arguments, **texts}


def _each_once(arguments: Mapping[str, object]) -> Mapping[str, object]:
    labels = arguments["labels"]
    assert isinstance(labels, list)
    return {**arguments, "labels": list(dict.fromkeys(str(name).strip() for name in labels))}


def _repo_target(arguments: Mapping[str, object]) -> str:
    return str(arguments["repo"])


@tool(
    effect=effects.idempotent(key_lifetime=None),
    timeout=TIMEOUT_SECONDS,
    limits=issue_place_limits,
    target=issue_target,
    credential=CREDENTIAL,
    account=account,
    display={
        "doing": {"en": "Closing the issue on GitHub", "zh-CN": "正在关闭 GitHub 上的议题"},
        "checking": {"en": "Checking whether the issue was closed", "zh-CN": "正在核对议题是否已关闭"},
    },
)
async def close_issue(op: Operation, repo: str, issue_number: int, reason: Reason = "completed") -> Receipt:
    """Close an issue, or a pull request without merging it. One that is closed already stays closed.

    Args:
        repo: The repository as "owner/name".
        issue_number: The number of the issue or pull request.
        reason: completed or not_planned; GitHub shows it on issues.
    """
    refuse(issue_place_limits({"repo": repo, "issue_number": issue_number}))
    async with GitHub(op) as github:
        wanted = {"state": "closed", "state_reason": reason}
        reply = await github.http.patch(f"/repos/{repo}/issues/{issue_number}", json=wanted)
    number, url = made_by(reply, "number")
    return Receipt(resource_id=str(number), url=url or None, output={"number": number, "state": "closed", "url": url})


@tool(
    effect=effects.idempotent(key_lifetime=None),
    timeout=TIMEOUT_SECONDS,
    limits=_label_limits,
    prepare=_each_once,
    target=issue_target,
    credential=CREDENTIAL,
    account=account,
    display={
        "doing": {"en": "Adding labels on GitHub", "zh-CN": "正在 GitHub 上添加标签"},
        "checking": {"en": "Checking whether the labels were added", "zh-CN": "正在核对标签是否已添加"},
    },
)
async def add_labels(op: Operation, repo: str, issue_number: int, labels: list[str]) -> Receipt:
    """Add labels to an issue or pull request; those that it has already stay.

    Args:
        repo: The repository as "owner/name".
        issue_number: The number of the issue or pull request.
        labels: The names of the labels.
    """
    refuse(_label_limits({"repo": repo, "issue_number": issue_number, "labels": labels}))
    async with GitHub(op) as github:
        reply = await github.http.post(f"/repos/{repo}/issues/{issue_number}/labels", json={"labels": labels})
    # Any 2xx says that they are there; the list of all labels is for the model, and read leniently.
    shown = reply.json()
    names = [item.get("name") for item in shown if isinstance(item, dict)] if isinstance(shown, list) else labels
    return Receipt(resource_id=place_of(repo, issue_number), output={"labels": names})


def _undo_issue(receipt: Receipt, repo: str) -> ToolCall:
    return close_issue.call(repo=repo, issue_number=int(receipt.resource_id or 0), reason="not_planned")


@tool(
    effect=effects.lookup(find_issue, settle=SETTLE_SECONDS),
    timeout=TIMEOUT_SECONDS,
    limits=_create_limits,
    prepare=_without_markers,
    target=_repo_target,
    credential=CREDENTIAL,
    account=account,
    compensate=_undo_issue,
    display={
        "doing": {"en": "Opening the issue on GitHub", "zh-CN": "正在 GitHub 上新建议题"},
        "checking": {"en": "Checking whether the issue was opened", "zh-CN": "正在核对议题是否已新建"},
    },
)
async def create_issue(op: Operation, repo: str, title: str, body: str) -> Receipt:
    """Open an issue.

    Args:
        repo: The repository as "owner/name".
        title: One line.
        body: The description as GitHub Markdown.
    """
    refuse(_create_limits({"repo": repo, "title": title, "body": body}))
    async with GitHub(op) as github:
        signed = op.sign(body, place=repo, account=await github.account_id())
        reply = await github.http.post(f"/repos/{repo}/issues", json={"title": title, "body": signed})
    return receipt_of(*made_by(reply, "number"))
