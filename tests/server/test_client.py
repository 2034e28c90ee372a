"""The JavaScript client, in Node: each event once, across a killed server, with every digit."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest

from surefoot.testing.model import FakeModel
from tests.places import Place
from tests.server.house import Outside, house
from tests.server.rig import serving
from tests.support import eventually, eventually_sync

pytestmark = pytest.mark.foreign  # Node

CLIENT = str(files("surefoot.server") / "page" / "client.js")
PROGRAM = str(Path(__file__).with_name("client.mjs"))
SEQUENCE = 'id: 7\r\ndata: {"a":\r\ndata: 1}\r\n\r\n: alive\n\nevent: text\ndata: x\n\nid: 8\rdata: y\r\r'


def node() -> str:
    """The interpreter."""
    found = shutil.which("node")
    assert found, "Node 18 or newer is needed for the tests of client.js"
    return found


def words(*more: str) -> list[str]:
    """The command line of the program."""
    return [node(), PROGRAM, CLIENT, *more]


@asynccontextmanager
async def client(*more: str) -> AsyncIterator[list[dict[str, object]]]:
    """What the client says, as it says it."""
    said: list[dict[str, object]] = []
    process = await asyncio.create_subprocess_exec(*words(*more), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    lines = process.stdout

    async def read() -> None:
        async for line in lines:
            said.append(json.loads(line))

    reading = asyncio.ensure_future(read())
    try:
        yield said
        await asyncio.wait_for(reading, 30)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


async def test_it_follows_a_run_from_a_snapshot_or_from_the_beginning(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        seen = (await at.run(run_id))["last_event_sequence"]
        async with (
            client(at.running.url, "watch", run_id) as later,
            client(at.running.url, "watch", run_id, "0") as whole,
        ):
            await eventually(lambda: at.running._service.own.streams.count == 2, "both clients")
            await at.decide(action_id, "approve")
        last = (await at.run(run_id))["last_event_sequence"]
        assert isinstance(last, int) and isinstance(seen, int)
        assert later[:2] == [{"connection": "connecting"}, {"snapshot": seen}]
        assert [line["event"] for line in later if "event" in line] == list(range(seen + 1, last + 1))
        assert [line["event"] for line in whole if "event" in line] == list(range(1, last + 1))
        assert "".join(str(line["text"]) for line in whole if "text" in line) == "Written."
        assert later[-1] == whole[-1] == {"end": "completed"}
        async with client(at.running.url, "watch", run_id) as over:
            pass
        assert over[-1] == {"end": "completed"} and not any("event" in line for line in over)


async def test_it_refuses_what_another_try_does_not_mend(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, _ = await at.asked()
        async with client(at.running.url, "refused", "run_none", run_id) as said:
            pass
    assert said == [
        {"problem": True, "status": 404, "code": "not_found"},
        {"code": "not_found"},
        {"thrown": "of the page"},
    ]


async def test_c049_every_digit_of_a_large_integer_arrives(place: Place, outside: Outside) -> None:
    large = 2512292042121000001
    payer = outside.agent("payer", [("pay", {"cents": large})], "Paid.")
    assert isinstance(payer.model, FakeModel)
    async with house(place, [payer]) as at:
        run_id, action_id = await at.asked("payer")
        assert str(large) in (await at.client.get(f"/v1/pending-actions/{action_id}")).text
        async with client(at.running.url, "exact", action_id) as said:
            pass
        assert said == [{"arguments": {"cents": large}, "kinds": ["bigint"]}]
        await at.decide(action_id, "approve")
        await at.until(run_id, "completed")
    assert [text for _, text in outside.sent] == [str(large)]


def test_frames_may_be_cut_anywhere() -> None:
    done = subprocess.run(words("none", "parse", SEQUENCE + " "), capture_output=True, check=True, timeout=30)
    *cuts, exact = [json.loads(line) for line in done.stdout.splitlines()]
    whole = [
        {"id": "7", "event": "message", "data": '{"a":\n1}'},
        {"event": "text", "data": "x"},
        {"id": "8", "event": "message", "data": "y"},
    ]
    assert len(cuts) == len(SEQUENCE) and all(cut == whole for cut in cuts)
    assert exact == {
        "a": [2512292042121000001, -9007199254740993, 1.5e300],
        "b": '"9007199254740993, 12345678901234567890',
    }


def test_it_goes_on_after_the_server_was_killed(place: Place) -> None:
    with serving(place) as first:
        run_id, action_id = first.asked("writer")
        log = place.folder / "client.log"
        with log.open("wb") as file:
            process = subprocess.Popen(words(first.url, "watch", run_id, "0"), stdout=file)
        try:
            eventually_sync(lambda: "action_requested" in log.read_text(), "the question at the client")
            first.kill()
            eventually_sync(lambda: "waiting" in log.read_text(), "the client to notice")
            with serving(place, port=first.port) as second:
                assert second.decide(action_id, "approve").status == 200
                assert process.wait(timeout=60) == 0
                last = second.get(f"/v1/runs/{run_id}").record()["last_event_sequence"]
        finally:
            process.kill()
            process.wait()
    said = [json.loads(line) for line in log.read_text().splitlines()]
    assert isinstance(last, int)
    assert [line["event"] for line in said if "event" in line] == list(range(1, last + 1))
    assert said[-1] == {"end": "completed"}
