"""The model of the demo where no real one is asked: it reads the pull request, counts in its diff, comments."""

from __future__ import annotations

import msgspec

from surefoot.agent.model import ModelRequest, ToolResultMessage
from surefoot.testing.model import FakeModel, ScriptedCall

LINE_CHARACTERS_MAX = 120
FILES_SHOWN_MAX = 8


def scripted_model(repo: str, number: int) -> FakeModel:
    """A model whose answers depend on the conversation only, so that any worker can go on with it."""

    def publish(request: ModelRequest) -> list[ScriptedCall]:
        body = review(_pull_request(request))
        return [("create_issue_comment", {"repo": repo, "issue_number": number, "body": body})]

    read: list[ScriptedCall] = [("read_pull_request", {"repo": repo, "number": number})]
    return FakeModel([read, publish, _report], name="scripted")


def _report(request: ModelRequest) -> str:
    """The last word: what became of the comment, as the model was told."""
    told = next(m for m in reversed(request.messages) if isinstance(m, ToolResultMessage))
    if told.is_error or ("resource_id" not in told.content and "confirmed" not in told.content):
        return f"The review was not published: {told.content[:200]}"
    return "The review is published as one comment."


def _pull_request(request: ModelRequest) -> dict[str, object]:
    told = next(m for m in request.messages if isinstance(m, ToolResultMessage))
    try:
        found = msgspec.json.decode(told.content)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def review(pull: dict[str, object]) -> str:
    """A review of a pull request as `read_pull_request` gives it."""
    diff = str(pull.get("diff") or "")
    added = [line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    removed = sum(1 for line in diff.splitlines() if line.startswith("-") and not line.startswith("---"))
    names = [line.removeprefix("+++ b/") for line in diff.splitlines() if line.startswith("+++ b/")]
    shown = [f"- `{name}`" for name in names[:FILES_SHOWN_MAX]]
    more = [f"- and {len(names) - FILES_SHOWN_MAX} more"] if len(names) > FILES_SHOWN_MAX else []
    heading = f"**Review of “{pull.get('title', '')}”**: {len(names)} files, +{len(added)} −{removed}."
    return "\n".join([heading, "", *shown, *more, "", *_remarks(added, names)])


def _remarks(added: list[str], names: list[str]) -> list[str]:
    long = sum(1 for line in added if len(line) > LINE_CHARACTERS_MAX)
    marks = sum(1 for line in added if "TODO" in line or "FIXME" in line)
    tests = any("test" in name for name in names)
    found = [f"{long} new lines are longer than {LINE_CHARACTERS_MAX} characters."] if long else []
    found += [f"{marks} new lines say TODO or FIXME."] if marks else []
    found += ["The change comes with tests." if tests else "No test is changed: which one would have failed before?"]
    return found
