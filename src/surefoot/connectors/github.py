"""GitHub: read a pull request, comment on it or on an issue.

GITHUB_TOKEN is the credential, GITHUB_API_URL the address (https://api.github.com). GitHub drops no repeats of a
comment, so a comment carries a marker and is looked for after doubt (`github_lookup`). The body that goes out is the
approved one, without any marker that its author wrote into it, and with the operation's own at its end.
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
    check_place,
    number_in,
    object_in,
    place_of,
    text_in,
)
from surefoot.connectors.github_lookup import find_issue_comment, receipt_of
from surefoot.core.marker import MARKER_CHARACTERS_MAX, strip_namespace
from surefoot.effects import InDoubt, Operation, Receipt, Refused
from surefoot.errors import InvalidInput
from surefoot.http import Response

BODY_CHARACTERS_MAX = 65_536
"""GitHub's limit for the body of a comment; the marker counts."""
TEXT_CHARACTERS_MAX = BODY_CHARACTERS_MAX - MARKER_CHARACTERS_MAX
DIFF_CHARACTERS_MAX = 60_000
DIFF_BYTES_MAX = 4 * 1024 * 1024
FILES_MAX = 300
TIMEOUT_SECONDS = 15.0
SETTLE_SECONDS = 60.0

__all__ = ["create_issue_comment", "delete_issue_comment", "find_issue_comment", "read_pull_request"]


async def account(op: Operation) -> str:
    """The id of the account behind the credential, "" where it is not known. Raises as `surefoot.http` does."""
    async with GitHub(op) as github:
        return await _account_id(github)


def _issue_limits(arguments: Mapping[str, object]) -> str | None:
    return _place_fault(arguments, "issue_number") or _body_fault(arguments["body"])


def _pull_limits(arguments: Mapping[str, object]) -> str | None:
    return _place_fault(arguments, "number")


def _comment_limits(arguments: Mapping[str, object]) -> str | None:
    return _place_fault(arguments, "comment_id")


def _place_fault(arguments: Mapping[str, object], number: str) -> str | None:
    try:
        check_place(str(arguments["repo"]), int(str(arguments[number])))
    except InvalidInput as fault:
        return str(fault)
    return None


def _body_fault(body: object) -> str | None:
    if not isinstance(body, str) or not body.strip():
        return "body is empty: GitHub takes no comment without text"
    if len(body) > TEXT_CHARACTERS_MAX:
        return (
            f"body has {len(body)} characters; GitHub takes {BODY_CHARACTERS_MAX}, and {MARKER_CHARACTERS_MAX} of them "
            f"are kept for the marker: shorten it to {TEXT_CHARACTERS_MAX}"
        )
    return None


def _issue_target(arguments: Mapping[str, object]) -> str:
    return f"{arguments['repo']}#{arguments['issue_number']}"


def _pull_target(arguments: Mapping[str, object]) -> str:
    return f"{arguments['repo']}#{arguments['number']}"


def _comment_target(arguments: Mapping[str, object]) -> str:
    return f"{arguments['repo']} comment {arguments['comment_id']}"


@tool(
    effect=effects.read,
    timeout=TIMEOUT_SECONDS,
    limits=_pull_limits,
    target=_pull_target,
    credential=CREDENTIAL,
    display={"doing": {"en": "Reading the pull request on GitHub", "zh-CN": "正在读取 GitHub 上的拉取请求"}},
)
async def read_pull_request(op: Operation, repo: str, number: int) -> dict[str, object]:
    """Read a pull request: title, description, state, branches, changed files and the diff.

    Args:
        repo: The repository as "owner/name".
        number: The number of the pull request.
    """
    _refuse(_place_fault({"repo": repo, "number": number}, "number"))
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
    _refuse(_place_fault({"repo": repo, "comment_id": comment_id}, "comment_id"))
    async with GitHub(op) as github:
        # 404 is what a repeat meets; GitHub never gives an id twice, so there is nothing else that could be hit.
        reply = await github.http.delete(f"/repos/{repo}/issues/comments/{comment_id}", allow=(404,))
    return Receipt(resource_id=str(comment_id), output={"id": comment_id, "deleted": reply.status != 404})


def _without_markers(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """What is hashed, shown and approved is what will stand there: foreign markers go before approval."""
    return {**arguments, "body": strip_namespace(str(arguments["body"]))}


def _undo_comment(receipt: Receipt, repo: str) -> ToolCall:
    return delete_issue_comment.call(repo=repo, comment_id=int(receipt.resource_id or 0))


@tool(
    effect=effects.lookup(find_issue_comment, settle=SETTLE_SECONDS),
    timeout=TIMEOUT_SECONDS,
    limits=_issue_limits,
    prepare=_without_markers,
    target=_issue_target,
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
    _refuse(_issue_limits({"repo": repo, "issue_number": issue_number, "body": body}))
    async with GitHub(op) as github:
        signed = op.sign(body, place=place_of(repo, issue_number), account=await _account_id(github))
        reply = await github.http.post(f"/repos/{repo}/issues/{issue_number}/comments", json={"body": signed})
    return _created(reply)


async def _account_id(github: GitHub) -> str:
    try:
        found = await github.account()
    except BadAnswer as bad:
        raise Refused(f"GitHub does not say whose the token is: {bad}", retry_after=60.0) from None
    return "" if found is None else str(found.id)


def _created(reply: Response) -> Receipt:
    """A receipt needs the id alone; without it the comment exists, and the lookup has to find it."""
    made = reply.json()
    number = made.get("id") if isinstance(made, dict) else None
    if not isinstance(made, dict) or not isinstance(number, int) or isinstance(number, bool):
        raise InDoubt(f"GitHub answered {reply.status} without the comment's id", status=reply.status)
    url = made.get("html_url")
    return receipt_of(number, url if isinstance(url, str) else "")


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise Refused(fault)


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
