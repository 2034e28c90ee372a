"""Field cases as they show over HTTP and in the stream: C023, C024, C025, C031 and C055."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from surefoot import Operation, Receipt, effects, tool
from surefoot.core.marker import encode_key
from surefoot.testing.model import FakeModel
from tests.places import Place
from tests.server.house import Outside, house, note
from tests.server.watching import Connection
from tests.support import eventually

CANARY = "canary-5f0c9d1b7e3a4286"
HIDDEN = {"\u200b": "200b", "\u202e": "202e", "\u2066": "2066", "\u00ad": "00ad"}


async def test_c023_the_service_takes_no_times_and_gives_them_in_utc(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        document = (await at.client.get("/openapi.json")).json()
        asked = json.dumps([*_parameters(document), document["components"]["schemas"]["StartRun"]])
        asked += json.dumps(document["components"]["schemas"]["Decide"])
        assert not re.search(r'"(expires|until|since|before)[a-z_]*"|date-time', asked), "how long is said in seconds"
        texts = [
            (await at.client.get(f"/v1/{path}")).text
            for path in (f"runs/{run_id}", f"runs/{run_id}/events", "pending-actions", f"runs/{run_id}/messages")
        ]
        times = re.findall(r'"(?:[a-z_]*_at|at|since)":"([^"]*)"', "".join(texts))
        assert len(times) > 15
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", time) for time in times)
        assert (await at.client.get(f"/v1/pending-actions/{action_id}")).json()["expires_at"] in times


def _parameters(document: dict[str, dict[str, dict[str, dict[str, object]]]]) -> Iterator[object]:
    for methods in document["paths"].values():
        for operation in methods.values():
            parameters = operation.get("parameters", [])
            assert isinstance(parameters, list)
            yield from parameters


@pytest.mark.parametrize("character", HIDDEN)
async def test_c024_hidden_characters_are_shown_and_the_bytes_stay(
    place: Place, outside: Outside, character: str
) -> None:
    text = f"rm {character}-rf /"
    async with house(place, [outside.writer(text)]) as at:
        run_id, action_id = await at.asked()
        action = (await at.client.get(f"/v1/pending-actions/{action_id}")).json()
        assert action["arguments"] == {"text": text}, "the stored ones, as they are"
        shown = action["preview"]["arguments"]["text"]
        assert character not in shown and HIDDEN[character] in shown.lower()
        assert any(HIDDEN[character] in warning.lower() for warning in action["preview"]["warnings"])
        await at.decide(action_id, "approve", input_hash=action["input_hash"])
        await at.until(run_id, "completed")
    assert [sent for _, sent in outside.sent] == [text]


async def test_c025_a_message_while_a_call_waits_decides_nothing(place: Place, outside: Outside) -> None:
    writer = outside.agent("writer", [note("hello")], "Shorter.")
    async with house(place, [writer]) as at:
        run_id, action_id = await at.asked()
        said = await at.client.post(f"/v1/runs/{run_id}/messages", json={"text": "make it shorter"})
        assert said.status_code == 202 and outside.sent == []
        assert (await at.client.get(f"/v1/pending-actions/{action_id}")).json()["status"] == "waiting"
        await at.decide(action_id, "approve")
        await at.until(run_id, "completed")
    assert len(outside.sent) == 1
    assert isinstance(writer.model, FakeModel)
    kinds = [type(message).__name__ for message in writer.model.requests[-1].messages]
    assert kinds == ["UserMessage", "AssistantMessage", "ToolResultMessage", "UserMessage"], "in the provider's order"


async def test_c031_an_answer_that_comes_by_two_roads_is_one_result(place: Place, outside: Outside) -> None:
    async with house(
        place, [outside.agent("asker", [("ask_person", {"question": "Which?"})], "Thanks.", "Yes.")]
    ) as at:
        run_id, action_id = await at.asked("asker")
        # The value as a message of the conversation, and three times as the decision: twice under its key.
        await at.client.post(f"/v1/runs/{run_id}/messages", json={"text": "the first one"})
        answers = await asyncio.gather(
            at.decide(action_id, "answer", key="k", value="the first one"),
            at.decide(action_id, "answer", key="k", value="the first one"),
            at.decide(action_id, "answer", value="the first one"),
        )
        assert sorted(answer.status_code for answer in answers) in ([200, 200, 409], [200, 409, 409])
        await at.until(run_id, "completed")
        messages = (await at.client.get(f"/v1/runs/{run_id}/messages")).json()["items"]
    results = [message for message in messages if message["role"] == "tool_result"]
    assert len(results) == 1


async def test_c055_a_secret_leaves_by_no_door_of_the_service(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", CANARY)

    @tool(effect=effects.opaque)
    async def leak(op: Operation) -> Receipt:
        """Tell what must not be told."""
        token = op.secret("CRM_TOKEN") or ""
        coded = base64.b64encode(token.encode()).decode()
        return Receipt(resource_id=f"id-{token}", url=f"https://crm.example/?t={quote(token)}", output=[token, coded])

    outside.tools["leak"] = leak
    agents = [outside.agent("leaker", [("leak", {})], [note(f"it is {CANARY}")], [note("asked")], f"I saw {CANARY}.")]
    async with house(place, agents) as at:
        run_id = await at.started("leaker")
        action_id = await at.question(run_id)
        connection = await Connection.open(at.running.url, run_id)
        reading = asyncio.ensure_future(connection.rest())
        await eventually(lambda: b"action_requested" in connection.raw, "the question in the stream")
        refused = await at.decide(action_id, "approve", input_hash=CANARY)
        await at.decide(action_id, "approve", key=CANARY, reason=f"because of {CANARY}")
        await at.until(run_id, "completed")
        await asyncio.wait_for(reading, 30)
        paths = ("runs", f"runs/{run_id}", f"runs/{run_id}/events", f"runs/{run_id}/messages", "pending-actions")
        told = [(await at.client.get(f"/v1/{path}")).text for path in paths]
        told += [connection.raw.decode(), refused.text, (await at.client.get("/metrics")).text]
        told += [(await at.client.get("/v1/runs?cursor=" + CANARY)).text]
    assert "event: text" in connection.raw.decode() and "tool_result" in told[3]
    forms = {CANARY, base64.b64encode(CANARY.encode()).decode(), quote(CANARY), encode_key(CANARY)}
    assert [(form, index) for index, text in enumerate(told) for form in forms if form in text] == []
