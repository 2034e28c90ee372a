"""Questions and decisions over HTTP: decided once, by one, about what was shown."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.places import Place
from tests.server.house import Named, Outside, caller, code_of, house


async def test_the_inbox_shows_the_exact_action_and_goes_by_pages(place: Place, outside: Outside) -> None:
    agents = [outside.writer("rm \u202e -rf\u200b /", name=f"writer{n}") for n in range(3)]
    async with house(place, agents) as at:
        asked = [await at.asked(agent.name) for agent in agents]
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            path = f"/v1/pending-actions?status=waiting&limit=1{cursor and '&cursor=' + cursor}"
            page = (await at.client.get(path)).json()
            seen += [action["id"] for action in page["items"]]
            cursor = page["next_cursor"]
        assert seen == [action_id for _, action_id in asked]
        action = (await at.client.get(f"/v1/pending-actions/{seen[0]}")).json()
        assert action["arguments"] == {"text": "rm \u202e -rf\u200b /"} and len(action["input_hash"]) == 64
        assert "202e" in str(action["preview"]["warnings"]).lower()
        assert code_of(await at.client.get("/v1/pending-actions?cursor=act_none")) == (422, "bad_cursor")
        assert code_of(await at.client.get("/v1/pending-actions?run_id=run_none")) == (404, "not_found")
        assert code_of(await at.client.get("/v1/pending-actions/act_none")) == (404, "not_found")


async def test_c019_a_decision_that_matches_nothing_is_refused(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        before = (await at.run(run_id))["last_event_sequence"]
        assert code_of(await at.decide("act_none", "approve")) == (404, "not_found")
        assert code_of(await at.decide(action_id, "happened")) == (422, "wrong_decision")
        assert code_of(await at.decide(action_id, "approve", input_hash="0" * 64)) == (409, "input_changed")
        assert (await at.run(run_id))["last_event_sequence"] == before and outside.sent == []
        await at.client.post(f"/v1/runs/{run_id}/cancel")
        gone = await at.decide(action_id, "approve")
        assert code_of(gone) == (409, "action_expired") and gone.json()["details"] == {"why": "cancelled"}
        assert outside.sent == []


async def test_c017_what_is_sent_back_changes_nothing(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer("as it was shown")]) as at:
        run_id, action_id = await at.asked()
        forged = {"arguments": {"text": "changed"}, "run_id": "run_other", "step_id": "step_other", "version": 99}
        assert (await at.decide(action_id, "approve", forged)).status_code == 200
        await at.until(run_id, "completed")
    assert [text for _, text in outside.sent] == ["as it was shown"]


async def test_c021_of_a_hundred_decisions_at_once_one_wins(place: Place, outside: Outside) -> None:
    agent = outside.writer()
    async with house(place, [agent]) as at, house(place, [agent], worker=False) as other:
        run_id, action_id = await at.asked()
        choices = [
            ((at, other)[n % 2].decide(action_id, "approve" if n % 3 else "reject", key=f"p{n}")) for n in range(100)
        ]
        answers = await asyncio.gather(*choices)
        assert Counter(a.status_code for a in answers) == {200: 1, 409: 99}
        won = next(a for a in answers if a.status_code == 200).json()["decision"]
        lost = [a for a in answers if a.status_code == 409]
        assert all(code_of(a) == (409, "already_decided") for a in lost)
        assert all(a.json()["details"]["decision"] == won for a in lost), "each is told what was decided"
        await at.until(run_id, "completed")
        events = (await at.client.get(f"/v1/runs/{run_id}/events")).json()["items"]
        assert [e["data"]["decision"] for e in events if e["type"] == "action_decided"] == [won]
    assert len(outside.sent) == (1 if won == "approve" else 0)


async def test_another_answer_under_the_same_key_is_no_repeat(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, action_id = await at.asked()
        first = await at.decide(action_id, "approve", key="ticket-77", reason="fine")
        again = await at.decide(action_id, "approve", key="ticket-77", reason="fine")
        assert (first.status_code, again.status_code) == (200, 200) and first.json() == again.json()
        for other in ({"reason": "not so fine"}, {"reason": "fine", "input_hash": "beef"}):
            answer = await at.decide(action_id, "approve", other, key="ticket-77")
            assert code_of(answer) == (409, "already_decided"), other
        await at.until(run_id, "completed")


async def test_a_decision_whose_reply_was_lost_is_answered_again(place: Place, outside: Outside) -> None:
    doorman = Named(ada=caller("ada"), bob=caller("bob"))
    async with house(place, [outside.writer()], doorman=doorman) as at:
        at.client.headers["X-Caller"] = "ada"
        run_id, action_id = await at.asked()
        first = await at.decide(action_id, "approve", key="mine", reason="fine")
        again = await at.decide(action_id, "approve", key='"mine"', reason="fine")
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.json() == again.json()
        assert (first.json()["decided_by"], first.json()["decided_from"]) == ("ada", "test")
        await at.until(run_id, "completed")
        assert (await at.decide(action_id, "approve", key="mine")).json() == first.json()
        assert code_of(await at.decide(action_id, "approve", key="other")) == (409, "already_decided")
        assert code_of(await at.decide(action_id, "approve")) == (409, "already_decided")
        assert code_of(await at.decide(action_id, "reject", key="mine")) == (409, "already_decided")
        at.client.headers["X-Caller"] = "bob"
        stolen = await at.decide(action_id, "approve", key="mine")
        assert code_of(stolen) == (409, "already_decided") and stolen.json()["details"]["decided_by"] == "ada"
    assert len(outside.sent) == 1


@pytest.mark.parametrize(
    ("decision", "more", "status"),
    [
        ("happened", {"external_resource_id": "echo-7"}, "succeeded"),
        ("give_up", {}, "outcome_unknown"),
        ("did_not_happen", {}, "outcome_unknown"),
    ],
)
async def test_an_unknown_outcome_is_resolved(
    place: Place, outside: Outside, decision: str, more: dict[str, object], status: str
) -> None:
    async with house(place, [outside.agent("shouter", [("shout", {"text": "hi"})], "Shouted.")]) as at:
        run_id, action_id = await at.asked("shouter")
        if decision == "happened":
            assert code_of(await at.decide(action_id, "happened")) == (422, "invalid_input")
        answer = await at.decide(action_id, decision, more, reason="I looked")
        assert (answer.status_code, answer.json()["decision"]) == (200, decision)
        if decision == "did_not_happen":
            # It is sent again, nobody hears it again, and a person is asked again.
            await at.sf.wait(run_id, until=lambda run: bool(run.pending_actions), timeout=30)
            assert len(outside.sent) == 2
        run = await at.sf.snapshot(run_id)
        (step,) = [step for step in run.steps if step.tool_name == "shout"]
        assert step.status == status
        assert step.external_resource_id == more.get("external_resource_id")


async def test_a_question_is_answered_by_a_value_that_fits(place: Place, outside: Outside) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    script = [("ask_person", {"question": "Which one?", "answer_schema": schema})]
    async with house(place, [outside.agent("asker", script, "Thanks.")]) as at:
        run_id, action_id = await at.asked("asker")
        assert code_of(await at.decide(action_id, "answer", value={"id": "x"})) == (422, "answer_does_not_fit")
        large = 2512292042121000001
        answer = await at.decide(action_id, "answer", value={"id": large})
        assert answer.status_code == 200 and answer.json()["answer"] == {"id": large}, "C049: every digit is kept"
        await at.until(run_id, "completed")


async def test_permissions_are_asked_for_each_act(place: Place, outside: Outside) -> None:
    doorman = Named(
        ada=caller("ada"),
        reader=caller("reader", "read"),
        starter=caller("starter", "start"),
        approver=caller("approver", "approve"),
        noter=caller("noter", "approve:tool=post_note"),
        looker=caller("looker", "approve:class=lookup"),
        payer=caller("payer", "approve:permission=billing"),
        resolver=caller("resolver", "resolve"),
    )
    agents = [
        outside.writer(),
        outside.agent("payer", [("pay", {"cents": 5})], "Paid."),
        outside.agent("shouter", [("shout", {"text": "hi"})], "Shouted."),
    ]
    async with house(place, agents, doorman=doorman) as at:
        at.client.headers["X-Caller"] = "ada"
        asked = {agent.name: (await at.asked(agent.name))[1] for agent in agents}

        async def status(name: str, agent: str, decision: str) -> int:
            """What becomes of a decision that nobody means: its hash is wrong, where it would be allowed."""
            at.client.headers["X-Caller"] = name
            answer = await at.decide(asked[agent], decision, input_hash="0" * 64)
            return answer.status_code

        may = {
            name: [
                await status(name, "writer", "approve"),
                await status(name, "payer", "approve"),
                await status(name, "shouter", "happened"),
            ]
            for name in ("ada", "reader", "starter", "approver", "noter", "looker", "payer", "resolver")
        }
        assert may == {
            "ada": [409, 409, 422],
            "reader": [403, 403, 403],
            "starter": [403, 403, 403],
            "approver": [409, 403, 403],
            "noter": [409, 403, 403],
            "looker": [409, 403, 403],
            "payer": [403, 409, 403],
            "resolver": [403, 403, 422],
        }
        at.client.headers["X-Caller"] = "reader"
        assert code_of(await at.start("writer", "new")) == (403, "not_permitted")
        assert (await at.client.get("/v1/runs")).status_code == 200
        at.client.headers["X-Caller"] = "starter"
        assert code_of(await at.client.get("/v1/runs")) == (403, "not_permitted")
        at.client.headers["X-Caller"] = "nobody"
        assert code_of(await at.client.get("/v1/runs")) == (401, "no_caller")
