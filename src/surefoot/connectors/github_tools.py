"""What the GitHub tools share: limits, targets, and how their replies are read."""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.connectors.github_api import GitHub, check_place
from surefoot.core.marker import MARKER_CHARACTERS_MAX, strip_namespace
from surefoot.effects import InDoubt, Operation, Refused
from surefoot.errors import InvalidInput
from surefoot.http import Response

BODY_CHARACTERS_MAX = 65_536
"""GitHub's limit for the body of a comment, a review or an issue; the marker counts."""
TEXT_CHARACTERS_MAX = BODY_CHARACTERS_MAX - MARKER_CHARACTERS_MAX
TIMEOUT_SECONDS = 15.0
SETTLE_SECONDS = 60.0


async def account(op: Operation) -> str:
    """The id of the account behind the credential, "" where it is not known. Raises as `surefoot.http` does."""
    async with GitHub(op) as github:
        return await github.account_id()


def place_fault(arguments: Mapping[str, object], number: str | None = None) -> str | None:
    """Why `repo`, and the number of that name, are no place; None if they are."""
    try:
        check_place(str(arguments["repo"]), 1 if number is None else int(str(arguments[number])))
    except InvalidInput as fault:
        return str(fault)
    return None


def body_fault(body: object) -> str | None:
    """Why a text cannot be posted with a marker behind it."""
    if not isinstance(body, str) or not body.strip():
        return "body is empty: GitHub takes no comment without text"
    return length_fault(body)


def length_fault(body: str) -> str | None:
    """Why a text is too long to be posted with a marker behind it."""
    if len(body) > TEXT_CHARACTERS_MAX:
        return (
            f"body has {len(body)} characters; GitHub takes {BODY_CHARACTERS_MAX}, and {MARKER_CHARACTERS_MAX} of them "
            f"are kept for the marker: shorten it to {TEXT_CHARACTERS_MAX}"
        )
    return None


def issue_place_limits(arguments: Mapping[str, object]) -> str | None:
    """Limits of a tool that acts on an issue."""
    return place_fault(arguments, "issue_number")


def pull_place_limits(arguments: Mapping[str, object]) -> str | None:
    """Limits of a tool that acts on a pull request."""
    return place_fault(arguments, "number")


def issue_target(arguments: Mapping[str, object]) -> str:
    """ "acme/app#128", by `issue_number`."""
    return f"{arguments['repo']}#{arguments['issue_number']}"


def pull_target(arguments: Mapping[str, object]) -> str:
    """ "acme/app#128", by `number`."""
    return f"{arguments['repo']}#{arguments['number']}"


def without_markers(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """What is hashed, shown and approved is what will stand there: foreign markers go before approval."""
    return {**arguments, "body": strip_namespace(str(arguments["body"]))}


def refuse(fault: str | None) -> None:
    """Raise Refused where there is a fault."""
    if fault is not None:
        raise Refused(fault)


def made_by(reply: Response, name: str = "id") -> tuple[int, str]:
    """The id (or number) and the link of what was made. Without an id it exists, and the lookup has to find it."""
    made = reply.json()
    number = made.get(name) if isinstance(made, dict) else None
    if not isinstance(made, dict) or not isinstance(number, int) or isinstance(number, bool):
        raise InDoubt(f"GitHub answered {reply.status} without the {name} of what it made", status=reply.status)
    url = made.get("html_url")
    return number, url if isinstance(url, str) else ""
