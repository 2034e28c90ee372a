"""Two agents that need no key and no network: their models follow a script, their tools write to files beside this one.

    surefoot serve examples/notes.py

`writer` posts a note once a person has approved it. `messenger` sends a note and never hears whether it arrived, so a
person is asked. curl.sh and javascript/ talk to them.
"""

from __future__ import annotations

from pathlib import Path

from surefoot import Absent, Agent, Approval, Found, Operation, Receipt, effects, tool
from surefoot.testing import FakeModel

NOTES = Path("notes.txt")


def find_note(op: Operation, text: str) -> Found | Absent:
    """Whether the file has a line with this key."""
    held = NOTES.read_text() if NOTES.exists() else ""
    return Found(Receipt(resource_id=op.key)) if op.key in held else Absent(coverage="the whole file")


@tool(effect=effects.lookup(find_note, settle=1), approval=Approval(expires=86_400))
def post_note(op: Operation, text: str) -> Receipt:
    """Post a note."""
    with NOTES.open("a") as file:
        file.write(f"{op.key} {text}\n")
    return Receipt(resource_id=op.key)


@tool(effect=effects.opaque)
def send_note(op: Operation, text: str) -> Receipt:
    """Send a note to somebody who never answers."""
    raise effects.InDoubt("no answer came")


writer = Agent(
    name="writer",
    model=FakeModel([[("post_note", {"text": "Milk is out."})], "The note is posted."]),
    instructions="Post a note.",
    tools=[post_note],
)
messenger = Agent(
    name="messenger",
    model=FakeModel([[("send_note", {"text": "Milk is out."})], "The note was sent."]),
    instructions="Send a note.",
    tools=[send_note.using(settle=1)],
)
