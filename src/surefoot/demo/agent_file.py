"""The user's file of the demo, written into its folder so that it can be read, kept and changed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from surefoot.demo.processes import NUMBER, REPO

TEMPLATE = '''\
"""The agent of the demo. The model is {comment}."""

from surefoot import Agent, Approval
from surefoot.connectors import github
{imports}
reviewer = Agent(
    name="reviewer",
    model={model},
    instructions="Review the pull request, then publish your review as one comment. Publish once, then stop.",
    tools=[
        github.read_pull_request,
        github.create_issue_comment.using(approval=Approval(expires=86_400), settle={settle:g}, timeout={timeout:g}),
    ],
)
'''


class Times(msgspec.Struct, frozen=True):
    """The seconds of a story. Only stories that have to wait for one make it shorter than it is by default."""

    settle: float = 60.0
    timeout: float = 15.0
    lease: float = 30.0


def write_agent_file(folder: Path, model: str | None, times: Times) -> None:
    """Write reviewer.py; without a model name the scripted model answers."""
    scripted = f'scripted_model("{REPO}", {NUMBER})'
    text = TEMPLATE.format(
        comment="a real one" if model else "scripted: it needs no key and no network",
        imports="" if model else "from surefoot.demo.script import scripted_model\n",
        model=f'"{model}"' if model else scripted,
        settle=times.settle,
        timeout=times.timeout,
    )
    (folder / "reviewer.py").write_text(text, encoding="utf-8")
