"""Merging a pull request: a conditional write. GitHub merges only the head that is named, and only once.

The head that a person saw is an argument (so it is hashed and approved) and the precondition (so that a pull request
which moved on since is asked about again), and goes out as `sha`. After doubt the pull request itself tells: merged
with this head is found, whoever merged it; not merged, with this head, is absent. A second merge cannot happen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from surefoot import effects
from surefoot.agent.tools import tool
from surefoot.connectors.github_api import (
    CREDENTIAL,
    BadAnswer,
    GitHub,
    TooManyPages,
    check_place,
    number_in,
    object_in,
    place_of,
    text_in,
)
from surefoot.connectors.github_lookup import Stop, check_repo, stop_of, undetermined
from surefoot.connectors.github_tools import (
    SETTLE_SECONDS,
    TIMEOUT_SECONDS,
    account,
    pull_place_limits,
    pull_target,
    refuse,
)
from surefoot.effects import Absent, Found, InDoubt, NotSent, Operation, Receipt, Refused, Verdict

Method = Literal["merge", "squash", "rebase"]
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


async def pull_request_head(op: Operation, repo: str, number: int) -> dict[str, str]:
    """The head of a pull request now: a precondition for tools that act on what a person has seen.

    Raises as `surefoot.http` does, and BadAnswer.
    """
    async with GitHub(op) as github:
        pull = await github.read(f"/repos/{repo}/pulls/{number}")
    return {"head_sha": text_in(object_in(pull, "head"), "sha")}


async def find_merge(op: Operation, repo: str, number: int, head_sha: str) -> Verdict:
    """Whether the pull request is merged with that head. Reads only; raises InvalidInput for a bad place.

    The reasons of an Undetermined beside those of `github_lookup`: merged_at_another_head, head_changed.
    """
    check_place(repo, number)
    coverage: dict[str, object] = {"place": place_of(repo, number), "head_sha": head_sha}
    try:
        async with GitHub(op) as github:
            await check_repo(github, op, repo)
            return _judge(await github.read(f"/repos/{repo}/pulls/{number}"), number, head_sha, coverage)
    except (Refused, InDoubt, NotSent, BadAnswer, TooManyPages) as exc:
        return undetermined(stop_of(exc), coverage)
    except Stop as stop:
        return undetermined(stop, coverage)


def _judge(pull: Mapping[str, object], number: int, head_sha: str, coverage: dict[str, object]) -> Verdict:
    if number_in(pull, "number") != number:
        raise Stop("moved")
    merged, head = pull.get("merged"), text_in(object_in(pull, "head"), "sha")
    if not isinstance(merged, bool):
        raise BadAnswer("merged is neither true nor false")
    coverage |= {"merged": merged, "head_now": head}
    if merged:
        if head != head_sha:
            raise Stop("merged_at_another_head")
        coverage["merged_by"] = text_in(object_in(pull, "merged_by"), "login")
        return Found(_receipt(text_in(pull, "merge_commit_sha"), text_in(pull, "html_url")), coverage=coverage)
    if head != head_sha:
        raise Stop("head_changed")
    return Absent(coverage=coverage)


def _receipt(sha: str, url: str) -> Receipt:
    return Receipt(resource_id=sha or None, url=url or None, output={"merged": True, "sha": sha})


def _limits(arguments: Mapping[str, object]) -> str | None:
    if _SHA.fullmatch(str(arguments["head_sha"])) is None:
        return "head_sha is the full commit id of the head, as read_pull_request gives it"
    return pull_place_limits(arguments)


@tool(
    effect=effects.lookup(find_merge, settle=SETTLE_SECONDS),
    timeout=TIMEOUT_SECONDS,
    limits=_limits,
    target=pull_target,
    credential=CREDENTIAL,
    account=account,
    precondition=pull_request_head,
    display={
        "doing": {"en": "Merging the pull request on GitHub", "zh-CN": "正在合并 GitHub 上的拉取请求"},
        "checking": {"en": "Checking whether the pull request was merged", "zh-CN": "正在核对拉取请求是否已合并"},
    },
)
async def merge_pull_request(op: Operation, repo: str, number: int, head_sha: str, method: Method = "merge") -> Receipt:
    """Merge a pull request, if its head is still the one that is named.

    Args:
        repo: The repository as "owner/name".
        number: The number of the pull request.
        head_sha: The head that was reviewed, as read_pull_request gives it.
        method: merge, squash or rebase.
    """
    refuse(_limits({"repo": repo, "number": number, "head_sha": head_sha}))
    async with GitHub(op) as github:
        wanted = {"sha": head_sha, "merge_method": method}
        path = f"/repos/{repo}/pulls/{number}"
        reply = await github.http.put(f"{path}/merge", json=wanted, allow=(405,))
        if reply.status == 405:
            return await _not_merged(op, github, path, head_sha)
    made = reply.json()
    if not isinstance(made, dict) or not isinstance(made.get("sha"), str) or made.get("merged") is not True:
        raise InDoubt(f"GitHub answered {reply.status} without saying that it merged", status=reply.status)
    return _receipt(made["sha"], "")


async def _not_merged(op: Operation, github: GitHub, path: str, head_sha: str) -> Receipt:
    """405: closed or not mergeable, or merged already. The last may be what an earlier attempt did that was sent."""
    try:
        pull = await github.read(path)
        same = pull.get("merged") is True and text_in(object_in(pull, "head"), "sha") == head_sha
        if same and op.earlier_may_be_sent:
            return _receipt(text_in(pull, "merge_commit_sha"), text_in(pull, "html_url"))
    except BadAnswer as bad:
        raise InDoubt(f"GitHub's answer cannot be read: {bad}") from None
    why = "it is merged already" if same else "it is closed or not mergeable"
    raise Refused(f"GitHub does not merge this pull request: {why}", status=405)
