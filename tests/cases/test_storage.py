"""Storage: C041 to C044."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter

import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, http, tool
from surefoot.agent.model import CallPart, ModelRequest, ModelResponse, UserMessage
from surefoot.errors import SurefootError
from surefoot.runtime.execute import RESULT_BYTES_MAX
from surefoot.testing.world import TOKEN
from tests.cases.rig import Hand, Live, Script, Sim, calls_of, comment, ended, post_comment, story

SECONDS = 20
PROCESSES = 8
FILES = 20


async def test_c041_eight_processes_open_a_fresh_store_at_once(live: Live) -> None:
    openers = [await start_opener(live) for _ in range(PROCESSES)]
    answers: Counter[str] = Counter()
    for _ in range(FILES):
        url = live.place.empty()
        for opener in openers:
            assert opener.stdin is not None
            opener.stdin.write(f"{url}\n".encode())
        answers.update([await line_of(opener) for opener in openers])
        versions = [row["version"] for row in live.place.contents(url)["schema_migration"]]
        assert versions and len(versions) == len(set(versions)), "the schema was made once"
    for opener in openers:
        opener.kill()
        await opener.wait()
    assert answers == {"ok": PROCESSES * FILES}


async def start_opener(live: Live) -> asyncio.subprocess.Process:
    """One of the processes, up and waiting."""
    opener = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cases.opener", env=live.environment, cwd=live.folder,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert await line_of(opener) == "started"
    return opener


async def line_of(process: asyncio.subprocess.Process) -> str:
    """What it says next."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def test_c041_the_command_line_at_once_on_a_fresh_file(live: Live) -> None:
    answers = await asyncio.gather(*(live.shell("runs", "list") for _ in range(PROCESSES)))
    assert answers == [[]] * PROCESSES


CONVERSATIONS = 32
TURNS = 50
RESULT_CHARACTERS = 12_000


@tool(effect=effects.read)
async def read_page(number: int) -> str:
    """Read one page: something that was not seen before."""
    return random.Random(number).randbytes(RESULT_CHARACTERS // 2).hex()


class Reader:
    """A model that reads a new page each turn; without the double's checks, which would read every page fifty times."""

    name = "reader"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Another page, or the end."""
        first = request.messages[0]
        assert isinstance(first, UserMessage)
        turn = len(request.messages) // 2
        if turn == TURNS - 1:
            return ModelResponse("done")
        number = int(first.text.split()[-1]) * 1_000 + turn
        return ModelResponse("", (CallPart(f"call_{turn}", "read_page", f'{{"number": {number}}}'),))


@story
async def test_c042_a_file_grows_with_what_is_new_and_prune_shrinks_it(sim: Sim) -> None:
    """32 conversations of 100 steps, each request of which carries 50 kB that never change."""

    agent = Agent("reader", Reader(), instructions="x" * 50_000, tools=[read_page])
    sizes = []
    async with sim.surefoot(agent) as sf:
        for part in range(2):
            runs = [await sf.start("reader", f"Task {part * 16 + n}") for n in range(CONVERSATIONS // 2)]
            ends = [await sf.wait(run.id, until=ended) for run in runs]
            assert {(run.status, len(run.steps)) for run in ends} == {("completed", 2 * TURNS - 1)}
            await sf.store.prune(sf.tenant, 0.0, blobs_before=0.0)  # nothing is old: the file is brought up to date
            sizes.append(sim.place.size())
        payloads = 50_000 + CONVERSATIONS * (TURNS - 1) * RESULT_CHARACTERS
        assert sizes[1] < 3 * payloads, f"{sizes[1]} bytes for {payloads} of payload"
        assert sizes[1] < 2.1 * sizes[0], "linear"
        now = sim.machine.clock.now().wall + 1
        removed = await sf.store.prune(sf.tenant, now, blobs_before=now)
        assert removed["runs"] == CONVERSATIONS and sim.place.size() < sizes[1] / 20


SENT: list[int] = []


@tool(effect=effects.opaque, timeout=60)
async def post_and_return(op: Operation, megabytes: int) -> Receipt:
    """Act, and return far too much."""
    async with http.client(op, base_url="https://bell.example") as client:
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": op.key}
        reply = await client.post("/mail/messages", json={"to": "x", "text": "x"}, headers=headers)
    made = reply.json()
    assert isinstance(made, dict)
    return Receipt(resource_id=str(made["id"]), output={"blob": "界x" * (megabytes * 1_000_000 // 4)})


@pytest.mark.parametrize("megabytes", [5, 50])
def test_c043_a_huge_result_is_cut_and_never_fetched_again(sim: Sim, megabytes: int) -> None:
    @story
    async def play(sim: Sim) -> None:
        agent = sim.agent([[("post_and_return", {"megabytes": megabytes})], "done"], post_and_return)
        async with sim.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", "Fetch.")).id)
            (step,) = calls_of(run)
            (effect,) = sim.ours(step.operation_key)
            assert (run.status, step.status, step.attempt) == ("completed", "succeeded", 1)
            assert step.external_resource_id == str(effect.resource_id) and len(sim.posts()) == 1
            assert len(json.dumps(step.output, ensure_ascii=False).encode()) < 1.1 * RESULT_BYTES_MAX
            assert "cut" in str(step.output)
            told = sim.models[0].requests[1].messages[-1]
            assert len(str(told)) < 2 * RESULT_BYTES_MAX
        assert sim.place.size() < 4_000_000

    play(sim=sim)


REPLACED = {
    "sqlite": "UPDATE blob SET data = CAST(replace(data, 'Exactly', 'Loosely') AS BLOB)",
    "postgres": "UPDATE blob SET data = convert_to(replace(convert_from(data, 'UTF8'), 'Exactly', 'Loosely'), 'UTF8')",
}
DAMAGE = {
    "an unknown type tag": "UPDATE step SET rules = '{\"effect\":\"teleport\"}' WHERE type = 'tool_call'",
    "an unknown status": "UPDATE step SET status = 'finished' WHERE type = 'tool_call'",
    "a checkpoint that is no JSON": "UPDATE run SET limits = '{\"turns_max\":'",
    "another request": "UPDATE step SET safe_input = '{\"body\":\"Something else.\"}' WHERE type = 'tool_call'",
    "no request": "UPDATE step SET safe_input = NULL WHERE type = 'tool_call'",
    "another request beside its view": REPLACED["sqlite"],
    "no request beside its view": "DELETE FROM blob",
}
"""A request whose view does not show all of it stands in a blob beside it."""


async def why_not_driven(sf: Surefoot, run_id: str) -> str:
    """Wait until the worker has given up on the run: the code that stands on it, or that reading it raises."""
    while True:
        seen = sf.store.change_count()
        try:
            code = (await sf.store.run(sf.tenant, run_id)).blocked_code
        except SurefootError as error:
            return error.code
        if code is not None:
            return code
        await sf.store.changed(seen, 0.1)


@pytest.mark.parametrize("what", DAMAGE)
async def test_c044_nothing_is_executed_on_a_damaged_state(live: Live, what: str) -> None:
    text = "Exactly this: password=hunter2hunter2." if what.endswith("beside its view") else "Exactly this."
    script: Script = [[comment(text)], "done"]
    async with live.surefoot(live.agent(script, post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
    async with live.surefoot(worker=False) as sf:
        await sf.approve(run.pending_actions[0].id, by="ann")
    live.place.save()
    statement = REPLACED[live.place.kind] if what == "another request beside its view" else DAMAGE[what]
    assert live.place.execute(statement) >= 1
    agent = live.agent(script, post_comment(gated=True))
    async with live.surefoot(agent) as sf, asyncio.timeout(SECONDS):
        assert await why_not_driven(sf, run.id) == "unreadable"
    report = await live.shell("doctor", exit_code=1)
    assert run.id in str(report) and "unreadable" in str(report)
    assert live.posts() == [] and live.models[1].requests == []
    # What was damaged is put right from a copy: the run goes on, and the call happens once.
    live.place.put_back()
    async with live.surefoot(agent) as sf:
        run = await sf.wait(run.id, until=ended, timeout=SECONDS)
    assert run.status == "completed" and live.bodies() == [text]


async def test_c044_a_damaged_conversation_is_not_shown_to_a_model(live: Live, hand: Hand) -> None:
    script: Script = [[comment("Asked.")], "done"]
    async with live.surefoot(live.agent(script, post_comment(gated=True))) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id, timeout=SECONDS)
    assert live.place.execute("UPDATE message SET body = '{\"text\":' WHERE role = 'assistant'") == 1
    await hand.reject(run.pending_actions[0].id)
    agent = live.agent(script, post_comment(gated=True))
    live.may_run.add(run.id)
    async with live.surefoot(agent) as sf, asyncio.timeout(SECONDS):
        assert await why_not_driven(sf, run.id) == "unreadable"
        snapshot = await sf.snapshot(run.id)
    assert snapshot.error_code == "unreadable" and live.models[1].requests == [] and live.posts() == []
