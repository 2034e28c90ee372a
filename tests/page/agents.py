"""The user's file of the page's tests: copied into the folder of a server, which imports it from there.

What the tools do is a line in sent.txt; files beside it are gates that a test opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from surefoot import (
    Absent,
    Agent,
    Approval,
    Found,
    Operation,
    Receipt,
    Undetermined,
    ask_person,
    effects,
    tool,
)
from surefoot.agent.model import ModelRequest, ModelResponse
from surefoot.agent.tools import Tool
from surefoot.connectors import github
from surefoot.testing.model import FakeModel, Step

HERE = Path(__file__).parent
SENT = HERE / "sent.txt"
REVIEW = """\
## Review of “Retry only what is safe”

The change keeps the **key** through a restart. Three remarks:

1. `retry()` is called without its budget
2. The [specification](https://spec.example/retries) asks for *jitter*
3. One test would show it

```python
retry(budget=3)
```

| file | lines |
|---|---|
| `client.py` | +42 |
"""
SLY = (
    "Looks good \u202edoog ton\u202c to me.\u200b <img src=x onerror=window.attacked=1>\n\n"
    "<script>window.attacked = 1</script>\n\n"
    "[safe](javascript:window.attacked=1) [bank](https://evil.example/login) ![pixel](https://evil.example/p.png)\n\n"
    "<!-- said to nobody -->"
)


def write(op: Operation, text: str) -> None:
    """An effect."""
    with SENT.open("a") as file:
        file.write(f"{op.key} {text}\n")


def happened(op: Operation) -> bool:
    """Whether an effect with this key is there."""
    return SENT.exists() and op.key in SENT.read_text()


async def gate(name: str) -> None:
    """Wait until a test opens it."""
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)


def find_note(op: Operation, text: str) -> Found | Absent:
    """Read the file."""
    return Found(Receipt(resource_id="note-1")) if happened(op) else Absent(coverage="the whole file")


@tool(effect=effects.lookup(find_note, settle=0.1), approval=Approval(expires=3_600))
async def post_note(op: Operation, text: str) -> Receipt:
    """Post a note."""
    write(op, "note")
    return Receipt(resource_id="note-1", url="https://notes.example/1", output={"said": SLY})


@tool(effect=effects.opaque, approval=Approval(expires=3_600))
async def pay(op: Operation, invoice: int, text: str) -> Receipt:
    """Pay an invoice."""
    write(op, f"{invoice}")
    return Receipt(resource_id="payment-1")


@tool(effect=effects.read)
async def peek(op: Operation, number: int) -> str:
    """Look at one of many things; every tenth takes a look at the gate."""
    if number % 10 == 9:
        await gate("walk")
    return f"thing {number}"


@tool(effect=effects.opaque)
async def shout(op: Operation, text: str) -> Receipt:
    """Shout, and never learn whether anybody heard it."""
    write(op, text)
    if (HERE / "heard").exists():
        return Receipt(resource_id="echo-1")
    raise effects.InDoubt("no echo")


def find_parcel(op: Operation, address: str) -> Undetermined:
    """Ask the carrier, who does not know."""
    return Undetermined("the carrier does not answer", coverage="parcels since noon")


# A person is asked after twice the settle time: meanwhile it is looked for.
@tool(effect=effects.lookup(find_parcel, settle=30))
async def ship(op: Operation, address: str) -> Receipt:
    """Ship a parcel."""
    write(op, address)
    raise effects.InDoubt("the line went dead")


def find_mail(op: Operation, to: str) -> Found:
    """Two of them are there."""
    first = Receipt(resource_id="mail-1", url="https://mail.example/1")
    return Found(first, also=(Receipt(resource_id="mail-2", url="https://mail.example/2"),))


@tool(effect=effects.lookup(find_mail, settle=0.05))
async def mail(op: Operation, to: str) -> Receipt:
    """Send a mail."""
    write(op, to)
    raise effects.InDoubt("the line went dead")


@tool(effect=effects.opaque, timeout=60)
async def pour_concrete(op: Operation, cubic_metres: int) -> Receipt:
    """Pour, and end once the gate is open."""
    write(op, f"{cubic_metres}")
    await gate("poured")
    return Receipt(resource_id="slab-1")


class Slowly(FakeModel):
    """Writes half of a text, and the rest once the gate is open."""

    async def stream(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelResponse:
        answer = await self.complete(request)
        half = len(answer.text) // 2
        emit(answer.text[:half])
        if half:
            await gate("written")
        emit(answer.text[half:])
        return answer


def agent(name: str, tools: list[Tool], *script: Step, model: FakeModel | None = None) -> Agent:
    """An agent that does what the script says."""
    return Agent(name=name, model=model or FakeModel(script), instructions="Do it.", tools=tools)


ANSWER = {
    "type": "object",
    "required": ["when", "seats"],
    "properties": {
        "when": {"type": "string", "format": "date", "title": "Day"},
        "seats": {"type": "integer", "minimum": 1, "maximum": 12},
        "extras": {"type": "array", "items": {"enum": ["lunch", "parking"]}},
        "quiet": {"type": "boolean"},
    },
}
PLACES = {"question": "Where shall we meet?", "choices": ["Berlin", "上海"]}
COMMENT = {"repo": "acme/app", "issue_number": 128, "body": REVIEW}

reviewer = agent(
    "reviewer",
    [
        github.read_pull_request,
        github.create_issue_comment.using(approval=Approval(expires=86_400), settle=0.2, timeout=2),
    ],
    [("read_pull_request", {"repo": "acme/app", "number": 128})],
    [("create_issue_comment", COMMENT)],
    "The review is published as one comment.",
)
writer = agent("writer", [post_note], [("post_note", {"text": "hello"})], "Written.")
sly = agent("sly", [post_note], [("post_note", {"text": SLY})], SLY)
shouter = agent("shouter", [shout.using(settle=0.05)], [("shout", {"text": "hi"})], "Shouted.")
shipper = agent("shipper", [ship], [("ship", {"address": "Main Street 1"})], "Shipped.")
mailer = agent("mailer", [mail], [("mail", {"to": "ada@example.org"})], "Mailed.")
planner = agent("planner", [ask_person], [("ask_person", {"question": "When?", "answer_schema": ANSWER})], "Planned.")
chooser = agent("chooser", [ask_person], [("ask_person", PLACES)], "Chosen.")
payer = agent("payer", [pay], [("pay", {"invoice": 2**53 + 1, "text": "ok\u200b; rm -rf"})], "Paid.")
counter = agent(
    "counter", [ask_person], [("ask_person", {"question": "Which?", "answer_schema": {"type": "integer"}})], "Known."
)
walker = agent("walker", [peek], *[[("peek", {"number": number})] for number in range(40)], "Home.")
builder = agent("builder", [pour_concrete], [("pour_concrete", {"cubic_metres": 3})], "Built.")
TOLD = "Word by word, and the rest of it once somebody allows it."
talker = agent("talker", [pour_concrete], model=Slowly([[("pour_concrete", {"cubic_metres": 1})], TOLD]))
