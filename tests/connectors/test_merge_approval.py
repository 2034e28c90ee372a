"""A merge is approved for one head: a pull request that moves on is asked about again."""

from __future__ import annotations

from surefoot.connectors import github
from surefoot.snapshot import RunSnapshot
from tests.cases.rig import NUMBER, REPO, calls_of
from tests.connectors.rig import ToolSim

OTHER = "b" * 40


def play(sim: ToolSim, *, push: bool) -> list[RunSnapshot]:
    """A gated merge; with `push`, somebody pushes between question and answer."""
    pull = sim.world.repos[REPO].issues[NUMBER].pull
    assert pull is not None
    arguments = {"repo": REPO, "number": NUMBER, "head_sha": pull.head_sha}
    seen: list[RunSnapshot] = []

    async def story() -> None:
        merge = github.merge_pull_request.using(approval="always", settle=5)
        agent = sim.agent([[("merge_pull_request", arguments)], "done"], merge)
        async with sim.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", "Merge it.")).id)
            seen.append(run)
            if push:
                sim.world.push(REPO, NUMBER, OTHER)
            await sf.approve(run.pending_actions[0].id, by="ann")
            seen.append(await sf.wait(run.id))

    sim.play(story)
    return seen


def test_the_head_is_shown_and_merged(sim: ToolSim) -> None:
    asked, ended = play(sim, push=False)
    assert asked.status == "waiting_for_user" and ended.status == "completed"
    assert len(sim.world.requests("PUT")) == 1
    pull = sim.world.repos[REPO].issues[NUMBER].pull
    assert pull is not None and calls_of(ended)[0].external_resource_id == pull.merge_commit_sha


def test_another_head_is_asked_about_again(sim: ToolSim) -> None:
    _, again = play(sim, push=True)
    assert again.status == "waiting_for_user" and sim.world.requests("PUT") == []
    assert [action.kind for action in again.pending_actions if action.status == "waiting"] == ["approve"]
