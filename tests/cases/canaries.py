"""A process whose runs meet twenty secrets by every road: `python -m tests.cases.canaries STORE`.

The secrets stand in the environment as CANARY_00 and so on. It tells all that it may tell, and prints it as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

import msgspec

from surefoot import (
    Absent,
    Agent,
    Approval,
    Found,
    Operation,
    Receipt,
    Surefoot,
    Undetermined,
    ask_person,
    effects,
    http,
    tool,
    wait_for_signal,
)
from surefoot.agent.texts import TextFrame
from surefoot.agent.tools import Tool
from surefoot.errors import SurefootError
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel, ScriptedCall
from tests.cases.rig import READ, comment, post_comment, read_pull

CANARIES = (
    "zq7HkP2vXw9LmN4t",
    "a/b+c==d&e f?g#h-one",
    "pa\"ss\\wo'rd<&>two",
    "schlüssel-密钥-ключ-three",
    "90217460338512",
    "deadbeef05c0ffee05f00d05",
    "Tq6#zV",
    "-----BEGIN ODD KEY-----\nMIIEseven0sevenA7bC9dE1fG\nZ7yX5wV3uT1sR9qP7oN5mL3k==\n-----END ODD KEY-----",
    "eight of\tline one\nline two of eight",
    "c2VjcmV0LW5pbmUtc2VjcmV0LW5pbmU=",
    "https://ten:pw10pw10pw@ten.example/p?q=1&r=2",
    '{"key": "eleven-eleven", "n": 11}',
    "100%25-twelve-%2Fsecret+12",
    "🔑-thirteen-🔑-dreizehn",
    "fourteen" + "-0a1b2c3d4e" * 180,
    "correct horse battery fifteen",
    "6b1f2c1e-16aa-4f16-8a16-161616161616",
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxNyJ9.c2lnbmF0dXJlLTE3",
    "<b>eighteen</b>&amp;amp;18",
    "nineteen-secret-19\n",
)
NAMES = tuple(f"CANARY_{number:02d}" for number in range(len(CANARIES)))


def forms(secret: str) -> list[str]:
    """What careless code makes of a secret: every text from which it can be read again."""
    raw, plain = secret.encode(), secret.strip()
    alone = [plain, json.dumps(plain)[1:-1], repr(plain)[1:-1], html.escape(plain), quote(plain), quote_plus(plain)]
    coded = [raw.hex(), raw.hex().upper(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()]
    framed = [base64.b64encode(before + raw + b"!").decode() for before in (b"u:", b"x", b"")]
    wrapped = base64.encodebytes(raw * 3).decode()
    return [*alone, *coded, *framed, wrapped]


def every(op: Operation) -> list[str]:
    """All secrets, as the tool resolves them by name."""
    return [value for name in NAMES if (value := op.secret(name)) is not None]


def joined(op: Operation) -> str:
    """All secrets in one text, each with its base64."""
    return " | ".join(f"{value} {base64.b64encode(value.encode()).decode()}" for value in every(op))


@dataclass
class Credential:
    """An object that prints what it holds."""

    value: str


class Broken(Exception):
    """An error that prints what it holds, and has it in its arguments, its notes and its repr."""

    def __init__(self, op: Operation) -> None:
        super().__init__(joined(op), every(op))
        self.add_note(joined(op))

    def __repr__(self) -> str:
        return f"Broken({self.args!r})"


@tool(effect=effects.read, attempts=1)
async def results(op: Operation, number: int) -> object:
    """Answer with every form of every secret, as key and value, as text, bytes, number and object."""
    found: dict[str, object] = {}
    for index, value in enumerate(every(op)):
        for place, form in enumerate(forms(value)):
            found[f"{index}.{place} {form}"] = [form, {form: form}]
        found[f"objects {index}"] = [value.encode(), Credential(value), Broken(op), {value}]
    return {**found, "number": 90217460338512, "text": joined(op), "lines": joined(op).replace(" ", "\n")}


@tool(effect=effects.read, attempts=1)
async def fail(op: Operation, number: int) -> str:
    """Raise in many ways."""
    try:
        raise KeyError(joined(op))
    except KeyError as error:
        match number:
            case 1:
                raise Broken(op) from error
            case 2:
                raise ExceptionGroup(joined(op), [error, Broken(op)]) from None
            case 3:
                raise UnicodeDecodeError("utf-8", joined(op).encode(), 0, 1, joined(op)) from None
            case 4:
                raise effects.Refused(joined(op)) from error
            case _:
                raise asyncio.CancelledError(joined(op)) from None


@tool(effect=effects.read, timeout=10, attempts=1)
async def fetch(op: Operation, number: int) -> object:
    """Every secret in a header, a path and a query, to a server that echoes it in its errors, and to none at all."""
    said: list[object] = []
    for value in every(op):
        token = quote(value, safe="")
        headers = {"Authorization": f"Bearer {token}", "X-Plain": base64.b64encode(value.encode()).decode()}
        for base in (os.environ["GITHUB_API_URL"], "http://127.0.0.1:1"):
            try:
                async with http.client(op, base_url=base, headers=headers) as client:
                    reply = await client.get(f"/echo/{token}", params={"token": value}, allow=(401, 404, 500))
                said.append([reply.status, reply.text, dict(reply.headers)])
            except Exception as error:
                said += [str(error), repr(error), "".join(traceback.format_exception(error))]
    if number == 2:
        raise RuntimeError(json.dumps(said, default=repr))
    return said


async def look_around(op: Operation, number: int) -> Found | Absent | Undetermined:
    """Cannot tell, then fails, then finds; with every secret in all that it says."""
    looks[number] = looks.get(number, 0) + 1
    if looks[number] == 1:
        return Undetermined(joined(op), coverage={joined(op): every(op)})
    if looks[number] == 2:
        raise Broken(op)
    first, *others = [Receipt(resource_id=value, url=f"https://x/?t={quote(value)}") for value in every(op)]
    return Found(first, also=tuple(others) if number == 9 else (), coverage={"seen": joined(op)})


looks: dict[int, int] = {}


@tool(effect=effects.lookup(look_around, settle=0.1), timeout=5)
async def doubt(op: Operation, number: int) -> Receipt:
    """In doubt, with the secrets in the reason."""
    raise effects.InDoubt(joined(op))


@tool(effect=effects.opaque)
async def send(op: Operation, number: int) -> Receipt:
    """A receipt made of secrets."""
    value = every(op)[number % len(CANARIES)]
    return Receipt(resource_id=value, url=f"https://x/{quote(value)}", output={value: joined(op)}, error=joined(op))


async def as_it_is(op: Operation, number: int) -> object:
    """What is shown at approval, and compared."""
    return {"state": joined(op), joined(op): every(op)}


@tool(effect=effects.opaque, approval=Approval(permission="x"), precondition=as_it_is)
async def gated(op: Operation, number: int) -> Receipt:
    """Wait for a person."""
    return Receipt(resource_id=f"gated {number}")


@tool(effect=effects.opaque)
async def write(op: Operation, text: str) -> Receipt:
    """Takes a text: one with a secret in it is refused before it is stored."""
    return Receipt(resource_id=text)


def script() -> list[str | list[ScriptedCall]]:
    """What the model says and calls. It has seen every secret, and repeats them wherever it can."""
    said = " ".join(f"{value} {base64.b64encode(value.encode()).decode()}" for value in CANARIES)
    calls: list[list[ScriptedCall]] = [[("results", {"number": 1})], [READ]]
    calls += [[("fail", {"number": number})] for number in range(1, 6)]
    calls += [[("fetch", {"number": number})] for number in (1, 2)]
    calls += [[("send", {"number": number}) for number in range(len(CANARIES))], [("doubt", {"number": 1})]]
    calls += [[("write", {"text": form}) for form in forms(value)] for value in CANARIES]
    calls += [[("write", '{"text": ' + value), (value, value), ("write", {value: value})] for value in CANARIES]
    calls += [[comment(value)] for value in CANARIES]
    calls += [[("gated", {"number": 1}), ("gated", {"number": 2})]]
    calls += [[("ask_person", {"question": said})], [("wait_for_signal", {"name": "news"})]]
    calls += [[("ask_person", {"question": "Which?", "choices": list(CANARIES)}), ("ask_person", {"question": "?"})]]
    return [*calls, f"All of them: {said}"]


def waits(run: RunSnapshot) -> bool:
    """A person or a signal is waited for, or the run has ended."""
    listens = any(step.tool_name == "wait_for_signal" and step.status == "waiting_for_approval" for step in run.steps)
    return bool(run.pending_actions) or listens or run.status in ("completed", "failed", "cancelled")


def after(version: int) -> Callable[[RunSnapshot], bool]:
    """The signal was taken, and the run went on."""
    return lambda run: run.version > version + 1


async def decide(sf: Surefoot, run_id: str) -> None:
    """The person's part, with a secret in everything that is said."""
    by = " ".join(CANARIES[2:6])
    while True:
        run = await sf.wait(run_id, until=waits, timeout=120)
        if run.result is not None or run.error_code is not None:
            return
        for number, action in enumerate(run.pending_actions):
            value = CANARIES[number]
            match action.kind:
                case "approve":
                    decided = sf.approve if number % 2 == 0 else sf.reject
                    await decided(action.id, by=by, reason=" ".join(CANARIES), key=value)
                case "ask":
                    await sf.answer(action.id, " ".join(CANARIES), by=by, key=value)
                case _:
                    await sf.resolve(action.id, "happened", by=by, external_resource_id=value, url=value, reason=value)
        if not run.pending_actions:
            await sf.signal(run_id, "news", {value: value for value in CANARIES})
            await sf.wait(run_id, until=after(run.version), timeout=60)


async def error_of(answer: Awaitable[object]) -> object:
    """All that a program may print of an error."""
    try:
        return msgspec.to_builtins(await answer, str_keys=True)
    except SurefootError as error:
        return [str(error), repr(error), error.details, traceback.format_exception(error)]


async def read_along(sf: Surefoot, run_id: str, frames: list[TextFrame]) -> None:
    """What streams."""
    async for frame in sf.texts(run_id):
        frames.append(frame)


async def main(store: str) -> None:
    """One run by every road, one call after another without an agent, and the errors."""
    model = FakeModel(script())
    model.piece = 3
    tools: list[Tool] = [results, fail, fetch, doubt, send, gated, write, ask_person, wait_for_signal, read_pull]
    said = " ".join(CANARIES)
    agent = Agent("reviewer", model, said, [*tools, post_comment()])
    frames: list[TextFrame] = []
    async with Surefoot(store, [agent], worker=True) as sf:
        for name in NAMES:
            sf.context.secrets.get(name)
        meta: Mapping[str, object] = {"token": said, "list": [forms(value) for value in CANARIES], CANARIES[5]: 1}
        run = await sf.start("reviewer", f"My tokens are {said}.", metadata=meta, key=CANARIES[0], by=CANARIES[3])
        reading = asyncio.ensure_future(read_along(sf, run.id, frames))
        await sf.message(run.id, said, by=CANARIES[2])
        await decide(sf, run.id)
        await asyncio.wait_for(reading, 30)
        told: list[object] = [
            await sf.snapshot(run.id), await sf.snapshot(run.id, "zh-CN"), [e async for e in sf.events(run.id)],
            await sf.messages(run.id), await sf.actions(), frames, "".join(frame.text for frame in frames),
        ]  # fmt: skip
        told += [await error_of(sf.perform(write.call(text=value), key=value, timeout=4)) for value in CANARIES]
        told += [await error_of(sf.perform(fail.call(number=n), timeout=4)) for n in range(1, 6)]
        told += [await error_of(sf.perform(send.call(number=n), key=f"n{n}", timeout=4)) for n in range(4)]
        told += [await error_of(sf.perform(doubt.call(number=9), key="nine", timeout=4))]
        told += [await error_of(sf.perform(gated.call(number=9), key="gated", timeout=4))]
        evidence = Found(Receipt(resource_id=said, url=said, output=said, error=said), coverage=said)
        told += [
            await error_of(sf.report("write:none", Undetermined(said))),
            await error_of(sf.report("doubt:nine", evidence)),
        ]
        told += [repr(sf), repr(sf.context), repr(agent), repr(sf.redactor), repr(sf.context.secrets)]
        sf.context.log(f"a line of the log with {said} and {[forms(value) for value in CANARIES]}")
        print(msgspec.json.encode(told).decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
