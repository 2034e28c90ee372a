"""What every connector's tool declares: class, texts in both languages, limits, target, credential."""

from __future__ import annotations

import pytest

from surefoot.agent.tools import Tool
from surefoot.connectors import github

TOOLS = [tool for name in github.__all__ if isinstance(tool := getattr(github, name), Tool)]
CLASSES = {
    "read_pull_request": "read",
    "create_issue_comment": "lookup",
    "create_review": "lookup",
    "create_issue": "lookup",
    "merge_pull_request": "lookup",
    "add_labels": "idempotent",
    "close_issue": "idempotent",
    "delete_issue_comment": "idempotent",
    "dismiss_review": "idempotent",
}


def test_the_classes_are_these() -> None:
    assert {tool.name: tool.effect.name for tool in TOOLS} == CLASSES
    assert all(tool.effect.key_lifetime is None for tool in TOOLS), "for ever"


@pytest.mark.parametrize("tool", TOOLS, ids=[tool.name for tool in TOOLS])
def test_each_has_what_people_and_the_runtime_need(tool: Tool) -> None:
    changes = tool.effect.name != "read"
    assert set(tool.display) == ({"doing", "checking"} if changes else {"doing"})
    for texts in tool.display.values():
        assert set(texts) == {"en", "zh-CN"} and "again" not in texts["en"]
    assert tool.limits is not None and tool.target is not None and tool.credential == "GITHUB_TOKEN"
    assert (tool.account is not None) == changes and tool.timeout == 15
    properties = tool.parameters_schema["properties"]
    assert isinstance(properties, dict)
    assert all("description" in node for node in properties.values()), "the model is told what each argument is"
