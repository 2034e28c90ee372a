"""Reviews of pull requests: submit one, find it again, dismiss it.

GitHub counts no reviews, so there is nothing that a listing could be compared with. Absent is earned by two complete
listings that agree, after the settle time. A submitted review cannot be deleted, only dismissed, and then it is still
listed: unlike a comment it cannot vanish between the effect and the look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from surefoot import effects
from surefoot.agent.tools import ToolCall, tool
from surefoot.connectors.github_api import (
    CREDENTIAL,
    Account,
    GitHub,
    check_place,
    number_in,
    object_in,
    place_of,
    text_in,
)
from surefoot.connectors.github_lookup import Comment, MarkerSearch, Stop, receipt_of, seconds_in
from surefoot.connectors.github_tools import (
    SETTLE_SECONDS,
    TIMEOUT_SECONDS,
    account,
    body_fault,
    made_by,
    place_fault,
    pull_place_limits,
    pull_target,
    refuse,
    without_markers,
)
from surefoot.effects import Absent, Operation, Receipt, Verdict

Event = Literal["COMMENT", "APPROVE", "REQUEST_CHANGES"]
MESSAGE_CHARACTERS_MAX = 10_000


async def find_review(op: Operation, repo: str, number: int, body: str) -> Verdict:
    """Look for the review of `op` on a pull request. Reads only; raises InvalidInput for a bad place."""
    check_place(repo, number)
    return await _ReviewSearch(op, repo, number, body).verdict()


class _ReviewSearch(MarkerSearch):
    """The lookup of a review."""

    def __init__(self, op: Operation, repo: str, number: int, body: str) -> None:
        super().__init__(op, repo, place_of(repo, number), body)
        self.number = number
        self.path = f"/repos/{repo}/pulls/{number}"

    async def _search(self, github: GitHub, account: Account) -> Verdict:
        await self._beside(self._check_number(github))
        first = await self._read_reviews(github, account)
        if (found := self._hit()) is not None:
            return found
        again = await self._read_reviews(github, account)
        if (found := self._hit()) is not None:
            return found
        if self.doubts:
            raise Stop(self.doubts[0])
        if first != again:
            raise Stop("listing_changed")
        return Absent(coverage=dict(self.coverage))

    async def _check_number(self, github: GitHub) -> None:
        if number_in(await github.read(self.path), "number") != self.number:
            raise Stop("moved")

    async def _read_reviews(self, github: GitHub, account: Account) -> list[int]:
        """Every page; the ids in their order."""
        ids: list[int] = []
        pages = 0
        async for page in github.pages(f"{self.path}/reviews"):
            pages += 1
            for review in self._readable(page, self._review):
                ids.append(review.id)
                self._judge(review, account)
            self.coverage |= {"pages": pages, "listed": len(ids)}
        return ids

    def _review(self, item: Mapping[str, object]) -> Comment:
        user = object_in(item, "user")
        # A review that was begun and not submitted has no time; only its own author sees it.
        submitted = item.get("submitted_at") is not None
        return Comment(
            id=number_in(item, "id"),
            url=text_in(item, "html_url"),
            body=text_in(item, "body"),
            author_id=number_in(user, "id") if user else None,
            created_at=seconds_in(item, "submitted_at") if submitted else self.window_start,
            submitted=submitted and item.get("state") != "PENDING",
        )


def _review_limits(arguments: Mapping[str, object]) -> str | None:
    return pull_place_limits(arguments) or body_fault(arguments["body"])


def _dismiss_limits(arguments: Mapping[str, object]) -> str | None:
    message = str(arguments["message"])
    if not message.strip() or len(message) > MESSAGE_CHARACTERS_MAX:
        return f"message is empty or longer than {MESSAGE_CHARACTERS_MAX} characters: GitHub wants a reason"
    if place_fault(arguments, "review_id"):
        return place_fault(arguments) or "review_id is the positive number of a review"
    return pull_place_limits(arguments)


def _review_target(arguments: Mapping[str, object]) -> str:
    return f"{pull_target(arguments)} review {arguments['review_id']}"


@tool(
    effect=effects.idempotent(key_lifetime=None),
    timeout=TIMEOUT_SECONDS,
    limits=_dismiss_limits,
    target=_review_target,
    credential=CREDENTIAL,
    account=account,
    display={
        "doing": {"en": "Dismissing the review on GitHub", "zh-CN": "正在撤销 GitHub 上的评审"},
        "checking": {"en": "Checking whether the review was dismissed", "zh-CN": "正在核对评审是否已撤销"},
    },
)
async def dismiss_review(op: Operation, repo: str, number: int, review_id: int, message: str) -> Receipt:
    """Dismiss an approving or rejecting review of a pull request. A review that only comments cannot be dismissed.

    Args:
        repo: The repository as "owner/name".
        number: The number of the pull request.
        review_id: The id of the review.
        message: Why it is dismissed.
    """
    refuse(_dismiss_limits({"repo": repo, "number": number, "review_id": review_id, "message": message}))
    path = f"/repos/{repo}/pulls/{number}/reviews/{review_id}"
    async with GitHub(op) as github:
        review = (await github.http.get(path, reading=True)).json()
        done = isinstance(review, dict) and review.get("state") == "DISMISSED"
        if not done:
            await github.http.put(f"{path}/dismissals", json={"message": message})
    return Receipt(resource_id=str(review_id), output={"id": review_id, "dismissed": not done})


def _undo_review(receipt: Receipt, repo: str, number: int, event: Event) -> ToolCall | None:
    if event == "COMMENT":
        return None
    message = "Submitted twice by mistake."
    return dismiss_review.call(repo=repo, number=number, review_id=int(receipt.resource_id or 0), message=message)


@tool(
    effect=effects.lookup(find_review, settle=SETTLE_SECONDS),
    timeout=TIMEOUT_SECONDS,
    limits=_review_limits,
    prepare=without_markers,
    target=pull_target,
    credential=CREDENTIAL,
    account=account,
    compensate=_undo_review,
    display={
        "doing": {"en": "Submitting the review on GitHub", "zh-CN": "正在 GitHub 上提交评审"},
        "checking": {"en": "Checking whether the review was submitted", "zh-CN": "正在核对评审是否已提交"},
    },
)
async def create_review(op: Operation, repo: str, number: int, body: str, event: Event) -> Receipt:
    """Submit a review of a pull request: a comment, an approval, or a request for changes.

    Args:
        repo: The repository as "owner/name".
        number: The number of the pull request.
        body: The review's text as GitHub Markdown.
        event: COMMENT, APPROVE or REQUEST_CHANGES.
    """
    refuse(_review_limits({"repo": repo, "number": number, "body": body}))
    async with GitHub(op) as github:
        signed = op.sign(body, place=place_of(repo, number), account=await github.account_id())
        path = f"/repos/{repo}/pulls/{number}/reviews"
        reply = await github.http.post(path, json={"body": signed, "event": event})
    return receipt_of(*made_by(reply))
