"""Lookups: C007 to C011."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from surefoot import Operation, Receipt, effects, tool
from surefoot.agent.model import ModelRequest, UserMessage
from surefoot.connectors import github
from surefoot.effects import Verdict
from surefoot.testing import faults as f
from surefoot.testing.model import ScriptedCall
from tests.cases.rig import (
    COMMENTS,
    ISSUE,
    NUMBER,
    REPO,
    Sim,
    all_events,
    calls_of,
    comment,
    ended,
    post_comment,
    read_pull,
    statuses,
    story,
)


@story
async def test_c007_a_long_thread_is_read_to_its_end_and_search_is_not_used(sim: Sim) -> None:
    sim.world.add_comments(REPO, NUMBER, 250)
    sim.fault(f.LostReply())
    sim.fault(f.StatusBefore(200, body={"total_count": 0, "items": []}), "GET", "/search/**", times=None)
    agent = sim.agent([[comment("Looks good.")], "done"], post_comment())
    async with sim.surefoot(agent) as sf:
        run = await sf.wait((await sf.start("reviewer", "Review it.")).id)
        (step,) = calls_of(run)
        (effect,) = sim.ours(step.operation_key)
        assert (run.status, step.external_resource_id) == ("completed", str(effect.resource_id))
        assert [look.query["page"] for look in sim.looks()] == ["1", "2", "3"]
        assert len(sim.posts()) == 1 and sim.world.requests("*", "/search/**") == []


def review_of(request: ModelRequest) -> list[ScriptedCall]:
    """A comment of its own for each task."""
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return [comment(first.text)]


@story
async def test_c008_a_burst_of_refusals_is_waited_for_and_costs_no_model_work(sim: Sim) -> None:
    sim.fault(f.StatusBefore(403, headers={"Retry-After": "5"}), times=29)
    agent = sim.agent([review_of, "done"], post_comment())
    texts = [f"Review {number}." for number in range(56)]
    async with sim.surefoot(agent) as sf:
        runs = [await sf.start("reviewer", text) for text in texts]
        ends = [await sf.wait(run.id) for run in runs]
        assert {run.status for run in ends} == {"completed"}
        assert sorted(sim.bodies()) == sorted(texts), "every comment once"
        assert len(sim.models[0].requests) == 2 * 56
        refused = 0
        for run in ends:
            (step,) = calls_of(run)
            times = [post.at for post in sim.posts() if str(step.operation_key) in post.body]
            refused += len(times) - 1
            assert all(later - earlier >= 5 for earlier, later in pairwise(times))
        assert refused == 29


HERE = 404


async def find_here(op: Operation, body: str) -> Verdict:
    """Look at the one place of `comment_here`."""
    return await github.find_issue_comment(op, REPO, HERE, body)


@tool(effect=effects.lookup(find_here, settle=5))
async def comment_here(op: Operation, body: str) -> Receipt:
    """Comment on acme/app#404, wherever the text points."""
    return await github.create_issue_comment(op, REPO, HERE, body)


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed_target", "named_target"])
def test_c009_only_the_tools_target_is_called(sim: Sim, fixed: bool) -> None:
    @story
    async def play(sim: Sim) -> None:
        sim.world.add_pull("other-org/other-repo", HERE)
        sim.fault(f.LostReply(), path="/repos/acme/app/issues/404/comments")
        text = "See other-org/other-repo#404 and #404, https://github.com/other-org/other-repo/pull/404."
        call: ScriptedCall = ("comment_here", {"body": text}) if fixed else comment(text, HERE)
        agent = sim.agent([[call], "done"], comment_here, post_comment())
        async with sim.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", f"Comment on other-org/other-repo#404. {text}")).id)
            (step,) = calls_of(run)
            assert (run.status, step.resolution, len(sim.ours(step.operation_key))) == ("completed", "found", 1)
            places = [entry.path for entry in sim.world.requests() if entry.path.startswith("/repos/")]
            assert places and all(path.startswith("/repos/acme/app") for path in places)

    play(sim=sim)


REFUSED_LOOKS: Mapping[str, f.AnyFault] = {
    "403": f.StatusBefore(403),
    "500": f.StatusBefore(500),
    "timeout": f.Hang(),
    "bad_json": f.BadJson(),
    "empty_body": f.EmptyBody(),
}


@pytest.mark.parametrize("name", REFUSED_LOOKS)
def test_c010_a_refused_look_is_never_absent(sim: Sim, name: str) -> None:
    @story
    async def play(sim: Sim) -> None:
        sim.fault(f.LostReply())
        sim.fault(REFUSED_LOOKS[name], "GET", COMMENTS, times=None)
        agent = sim.agent([[comment("Looks good.")], "done"], post_comment(settle=60))
        async with sim.surefoot(agent) as sf:
            run = await sf.start("reviewer", "Review it.")
            await sim.until(lambda: len(sim.looks()) >= 2)
            run = await sf.snapshot(run.id)
            (step,) = calls_of(run)
            assert (run.status, step.status) == ("reconciling", "outcome_unknown")
            assert {e.verdict for e in step.evidence} == {"undetermined"}
            assert run.next is not None and run.next.what == "look" and run.next.at is not None
            # After two settle times a person is asked too, and the looks go on behind the question.
            run = await sf.wait(run.id)
            assert (run.status, [a.kind for a in run.pending_actions]) == ("waiting_for_user", ["resolve"])
            looked = len(sim.looks())
            await sim.pass_time(3_600)
            assert len(sim.looks()) > looked and len(sim.posts()) == 1
            sim.world.faults.clear()
            run = await sf.wait(run.id, until=ended)
            (step,) = calls_of(run)
            assert (run.status, step.resolution, len(sim.posts())) == ("completed", "found", 1)
            assert run.pending_actions == [] and len(sim.ours(step.operation_key)) == 1
            (action,) = await sf.actions(run_id=run.id)
            assert (action.action.status.value, action.action.why) == ("expired", "settled")

    play(sim=sim)


@pytest.mark.parametrize("count_lags", [False, True], ids=["count_right", "count_lags_too"])
def test_c011_a_short_listing_is_never_absent(sim: Sim, count_lags: bool) -> None:
    @story
    async def play(sim: Sim) -> None:
        sim.world.add_comments(REPO, NUMBER, 3)
        sim.fault(f.LostReply())
        sim.fault(f.StaleListing(4), "GET", COMMENTS, times=None)
        if count_lags:
            sim.fault(f.StaleCount(4), "GET", ISSUE, times=None)
        agent = sim.agent([[comment("Looks good.")], "done"], post_comment(settle=5))
        async with sim.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", "Review it.")).id)
            events = await all_events(sf, run.id)
        (step,) = calls_of(run)
        assert (run.status, step.resolution, len(sim.posts())) == ("completed", "found", 1)
        assert len(sim.ours(step.operation_key)) == 1
        answers = [(e.data["verdict"], e.data.get("concluded", False)) for e in events if e.type == "lookup_answered"]
        assert len(answers) > 1 and answers[-1] == ("found", False)
        early = ("absent", False) if count_lags else ("undetermined", False)
        assert set(answers[:-1]) == {early}, "the short list was taken for what it is"
        assert statuses(events) == ["reconciling", "running", "completed"]

    play(sim=sim)


@pytest.mark.parametrize("count_lags", [False, True], ids=["count_right", "count_lags_too"])
def test_c011_a_full_listing_after_the_settle_time_is_absent(sim: Sim, count_lags: bool) -> None:
    @story
    async def play(sim: Sim) -> None:
        sim.world.add_comments(REPO, NUMBER, 3)
        sim.fault(f.LostRequest())
        if count_lags:
            sim.fault(f.StaleCount(4), "GET", ISSUE, times=None)
        agent = sim.agent([[comment("Looks good.")], "done"], post_comment(settle=5), read_pull)
        async with sim.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", "Review it.")).id)
        (step,) = calls_of(run)
        first, second = sim.posts()
        assert (run.status, step.attempt, len(sim.ours(step.operation_key))) == ("completed", 2, 1)
        assert second.at - first.at >= 5

    play(sim=sim)
