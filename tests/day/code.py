"""What a process of a day knows, where each has another code: as after a deploy, a rollback, or half of either.

Tools of another version, tools that can tell less, that may be tried less often or want more, and tools, agents and
schedules that are gone or were changed for a while. What a code declares of the target is always true: some declare
less of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

import msgspec

from surefoot import Agent, Approval, Schedule, effects, tool
from surefoot.agent.tools import Tool
from surefoot.effects import Operation, Receipt
from tests.day.script import AGENTS, Day, Ticks, agents_with, common_tools, schedules_of

VERSIONS = ("1", "2")
NEW_SHARE = 0.35
GONE_SHARE = 0.05
CHANGED_SHARE = 0.35
AGENT_GONE_SHARE = 0.1
PLAIN_SHARE = 0.06
SCHEDULE_SHARE = 0.15
KEPT_SHARE = 0.7
ATTEMPTS_FEWER = 3

Change = Literal["less", "fewer", "gated", "asks_more", "compared", "no_account", "business_key"]
"""How a tool is not as the day has it."""


class Code(msgspec.Struct, frozen=True):
    """One state of it."""

    agents: Mapping[str, str]
    """The version of each agent; one that is gone is missing."""
    plain: frozenset[str]
    """Agents under whose names others have a tool that is none."""
    tools: Mapping[str, str]
    """The version of each tool; one that is gone is missing."""
    changed: Mapping[str, Change]
    ticks: Mapping[str, Ticks]
    """What became of schedules that are not as the day has them."""

    def knows(self, tool_name: str) -> bool:
        """Whether an agent may have such a tool; the highest one has no caller."""
        return tool_name in self.tools or tool_name in self.agents or tool_name in self.plain


def whole_code(day: Day, version: str) -> Code:
    """Everything that there ever was, with the agents in one of their versions."""
    return Code(dict.fromkeys(AGENTS, version), frozenset(), {t.name: VERSIONS[-1] for t in common_tools(day)}, {}, {})


def smaller_code(day: Day, version: str, dice: random.Random) -> Code:
    """The same, but without some of the tools and agents: as of a worker that is not meant for all runs."""
    whole = whole_code(day, version)
    kept = {name: version for name, version in whole.tools.items() if dice.random() < KEPT_SHARE}
    agents = {name: version for name, version in whole.agents.items() if dice.random() < KEPT_SHARE}
    return Code({**agents, AGENTS[0]: version}, frozenset(), kept, {}, {})


def draw_code(day: Day, dice: random.Random) -> Code:
    """Another one."""

    def version() -> str:
        return VERSIONS[dice.random() < NEW_SHARE]

    tools = {tool.name: version() for tool in common_tools(day) if dice.random() >= GONE_SHARE}
    changed: dict[str, Change] = {}
    for name in tools:
        if name in _CHANGES and dice.random() < CHANGED_SHARE:
            changed[name] = dice.choice(_CHANGES[name])
    ticks: dict[str, Ticks] = {}
    for schedule in day.schedules:
        if dice.random() < SCHEDULE_SHARE:
            ticks[schedule.name] = dice.choice(("gone", "moved", "reworded"))
    return Code(
        agents={name: version() for name in AGENTS if name == AGENTS[0] or dice.random() >= AGENT_GONE_SHARE},
        plain=frozenset([name for name in AGENTS[1:] if dice.random() < PLAIN_SHARE]),
        tools=tools,
        changed=changed,
        ticks=ticks,
    )


def agents_of_code(day: Day, dice: random.Random, code: Code) -> list[Agent]:
    """Its agents, as a new process makes them."""
    tools = [_as_in(code, tool) for tool in common_tools(day) if tool.name in code.tools]
    return agents_with(day, dice, tools, code.agents, {name: answer.using(name=name) for name in sorted(code.plain)})


def schedules_of_code(day: Day, code: Code) -> tuple[Schedule, ...]:
    """Its schedules; none where the agent that they are for is gone."""
    return schedules_of(day, code.ticks) if AGENTS[-1] in code.agents else ()


@tool(effect=effects.read, name="answer")
async def answer(task: str) -> str:
    """Answer at once, without an agent."""
    return f"{task}: done."


@tool(effect=effects.opaque, name="charge")
async def charge_in(op: Operation, invoice: str, amount_cents: int, currency: str) -> Receipt:
    """Charge an invoice in a currency. Calls that were proposed without one do not fit."""
    raise AssertionError("no call of a day names a currency")


@tool(effect=effects.opaque, name="send_mail")
async def send_mail_as(op: Operation, to: str, text: str, sender: str) -> Receipt:
    """Send a mail in somebody's name."""
    raise AssertionError("no call of a day names a sender")


async def head(op: Operation) -> str:
    """What must not have changed since the approval."""
    return "3f9a01c"


def _invoice(invoice: str) -> str:
    return invoice


_CHANGES: Mapping[str, tuple[Change, ...]] = {
    "create_issue_comment": ("less", "less", "fewer", "compared", "no_account"),
    "note": ("less", "less", "fewer", "gated", "no_account"),
    "charge": ("less", "less", "fewer", "gated", "asks_more", "business_key"),
    "send_mail": ("fewer", "gated", "asks_more"),
    "read_pull_request": ("fewer",),
}


def _as_in(code: Code, tool: Tool) -> Tool:
    new = tool.using(version=code.tools[tool.name])
    match code.changed.get(tool.name):
        case "less":
            return new.using(effect=effects.opaque)
        case "fewer":
            return new.using(attempts=ATTEMPTS_FEWER)
        case "gated":
            return new.using(approval=Approval(expires=300.0))
        case "asks_more":
            other: Tool = charge_in if tool.name == "charge" else send_mail_as
            return other.using(version=new.version, effect=tool.effect)
        case "compared":
            return new.using(precondition=head)
        case "no_account":
            return new.using(account=None)
        case "business_key":
            return new.using(key=_invoice)
        case None:
            return new
