"""GitHub: read a pull request, comment on it or on an issue; review, open and close issues, label, merge.

GITHUB_TOKEN is the credential, or a GitHub App (`github_app`); GITHUB_API_URL the address (https://api.github.com).
GitHub drops no repeats of a comment, so a comment carries a marker and is looked for after doubt (`github_lookup`); so
do reviews and issues. The body that goes out is the approved one, without any marker that its author wrote into it, and
with the operation's own at its end. What each tool's answers are worth: docs/connectors.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from surefoot import effects
from surefoot.agent.tools import ToolCall, tool
from surefoot.connectors.github_api import (
    CREDENTIAL,
    BadAnswer,
    GitHub,
    number_in,
    object_in,
    place_of,
    text_in,
)
from surefoot.connectors.github_issues import add_labels, close_issue, create_issue, find_issue
from surefoot.connectors.github_lookup import find_issue_comment, receipt_of
from surefoot.connectors.github_merge import find_merge, merge_pull_request, pull_request_head
from surefoot.connectors.github_reviews import create_review, dismiss_review, find_review
from surefoot.connectors.github_tools import (
    BODY_CHARACTERS_MAX,
    SETTLE_SECONDS,
    TEXT_CHARACTERS_MAX,
    TIMEOUT_SECONDS,
    account,
    body_fault,
    issue_place_limits,
    issue_target,
    made_by,
    place_fault,
    pull_place_limits,
    pull_target,
    refuse,
    without_markers,
)
from surefoot.effects import InDoubt, Operation, Receipt, Refused

DIFF_CHARACTERS_MAX = 60_000
DIFF_BYTES_MAX = 4 * 1024 * 1024
FILES_MAX = 300

__all__ = [
    "BODY_CHARACTERS_MAX",
    "SETTLE_SECONDS",
    "TEXT_CHARACTERS_MAX",
    "TIMEOUT_SECONDS",
    "account",
    "add_labels",
    "close_issue",
    "create_issue",
    "create_issue_comment",
    "create_review",
    "delete_issue_comment",
    "dismiss_review",
    "find_issue",
    "find_issue_comment",
    "find_merge",
    "find_review",
    "merge_pull_request",
    "pull_request_head",
    "read_pull_request",
]


def _issue_limits(arguments: Mapping[str, object]) -> str | None:
    return issue_place_limits(arguments) or body_fault(arguments["body"])


def _comment_limits(arguments: Mapping[str, object]) -> str | None:
    return place_fault(arguments, "comment_id")


def _comment_target(arguments: Mapping[str, object]) -> str:
    return f"{arguments['repo']} comment {arguments['comment_id']}"


@tool(
    effect=effects.read,
    timeout=TIMEOUT_SECONDS,
    limits=pull_place_limits,
    target=pull_target,
    credential=CREDENTIAL,
    display={"doing": {"en": "Reading the pull request on GitHub", "zh-CN": "正在读取 GitHub 上的拉取请求"}},
)
async def read_pull_request(op: Operation, repo: str, number: int) -> dict[str, object]:
    """Read a pull request: title, description, state, branches, changed files and the diff.

    Args:
        repo: The repository as "owner/name".
        number: The number of the pull request.
    """
    refuse(place_fault({"repo": repo, "number": number}, "number"))
    path = f"/repos/{repo}/pulls/{number}"
    try:
        async with GitHub(op) as github:
            pull = _pull(await github.read(path))
            files, more_files = await _files(github, path)
            return {"repo": repo, **pull, "files": files, "more_files": more_files, **await _diff(github, path)}
    except BadAnswer as bad:
        raise InDoubt(f"GitHub's answer cannot be read: {bad}") from None


@tool(
    effect=effects.idempotent(key_lifetime=None),
    timeout=TIMEOUT_SECONDS,
    limits=_comment_limits,
    target=_comment_target,
    credential=CREDENTIAL,
    account=account,
    display={
        "doing": {"en": "Deleting the comment on GitHub", "zh-CN": "正在删除 GitHub 上的评论"},
        "checking": {"en": "Checking whether the comment was deleted", "zh-CN": "正在核对评论是否已删除"},
    },
)
async def delete_issue_comment(op: Operation, repo: str, comment_id: int) -> Receipt:
    """Delete a comment on an issue or pull request.

    Args:
        repo: The repository as "owner/name".
        comment_id: The id of the comment.
    """
    refuse(place_fault({"repo": repo, "comment_id": comment_id}, "comment_id"))
    async with GitHub(op) as github:
        # 404 is what a repeat meets; GitHub never gives an id twice, so there is nothing else that could be hit.
        reply = await github.http.delete(f"/repos/{repo}/issues/comments/{comment_id}", allow=(404,))
        if reply.status == 404:
            await _must_see(github, repo)
    return Receipt(resource_id=str(comment_id), output={"id": comment_id, "deleted": reply.status != 404})


async def _must_see(github: GitHub, repo: str) -> None:
    """GitHub answers 404 too for what a token may not see. Raises Refused."""
    seen = await github.http.get(f"/repos/{repo}", allow=(404,), reading=True)
    if seen.status == 404:
        raise Refused(f"the token does not see {repo}", status=404)


def _undo_comment(receipt: Receipt, repo: str) -> ToolCall:
    return delete_issue_comment.call(repo=repo, comment_id=int(receipt.resource_id or 0))


@tool(
    effect=effects.lookup(find_issue_comment, settle=SETTLE_SECONDS),
    timeout=TIMEOUT_SECONDS,
    limits=_issue_limits,
    prepare=without_markers,
    target=issue_target,
    credential=CREDENTIAL,
    account=account,
    compensate=_undo_comment,
    display={
        "doing": {"en": "Posting the comment on GitHub", "zh-CN": "正在 GitHub 上发表评论"},
        "checking": {"en": "Checking whether the comment was created", "zh-CN": "正在核对评论是否已创建"},
    },
)
async def create_issue_comment(op: Operation, repo: str, issue_number: int, body: str) -> Receipt:
    """Publish a comment on an issue or pull request.

    Args:
        repo: The repository as "owner/name".
        issue_number: The number of the issue or pull request.
        body: The comment as GitHub Markdown.
    """
    refuse(_issue_limits({"repo": repo, "issue_number": issue_number, "body": body}))
    async with GitHub(op) as github:
        signed = op.sign(body, place=place_of(repo, issue_number), account=await github.account_id())
        reply = await github.http.post(f"/repos/{repo}/issues/{issue_number}/comments", json={"body": signed})
    return receipt_of(*made_by(reply))


def _pull(value: Mapping[str, object]) -> dict[str, object]:
    head, base = object_in(value, "head"), object_in(value, "base")
    return {
        "number": number_in(value, "number"),
        "title": text_in(value, "title"),
        "body": text_in(value, "body"),
        "author": text_in(object_in(value, "user"), "login"),
        "state": "merged" if value.get("merged") is True else text_in(value, "state"),
        "draft": value.get("draft") is True,
        "head_sha": text_in(head, "sha"),
        "head": text_in(head, "ref"),
        "base": text_in(base, "ref"),
        "url": text_in(value, "html_url"),
    }


async def _files(github: GitHub, path: str) -> tuple[list[dict[str, object]], bool]:
    """The changed files, at most FILES_MAX, and whether there are more."""
    files: list[dict[str, object]] = []
    async with aclosing(github.pages(f"{path}/files")) as pages:
        async for page in pages:
            for file in page:
                if len(files) == FILES_MAX:
                    return files, True
                files.append({name: file.get(name) for name in ("filename", "status", "additions", "deletions")})
    return files, False


async def _diff(github: GitHub, path: str) -> dict[str, object]:
    """The diff, cut at whole characters. GitHub answers 406 where it is too large to be made."""
    reply = await github.http.get(
        path,
        headers={"Accept": "application/vnd.github.diff"},
        allow=(406,),
        reading=True,
        body_bytes_max=DIFF_BYTES_MAX,
    )
    if reply.status == 406:
        return {"diff": "", "note": "GitHub does not make a diff this large; only the list of files is given."}
    diff = reply.text
    if len(diff) <= DIFF_CHARACTERS_MAX and not reply.truncated:
        return {"diff": diff}
    return {"diff": diff[:DIFF_CHARACTERS_MAX], "note": f"The diff is cut after {DIFF_CHARACTERS_MAX} characters."}
