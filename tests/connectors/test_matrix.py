"""Each effectful tool in each kind of doubt, judged by the World's log: right by its grade, blind ones ask."""

from __future__ import annotations

import pytest

from surefoot.snapshot import RunSnapshot
from surefoot.testing import faults as f
from tests.cases.rig import calls_of
from tests.connectors.probes import PROBES, Killing, Probe
from tests.connectors.rig import ToolSim

EACH = pytest.mark.parametrize("probe", PROBES, ids=[probe.tool.name for probe in PROBES])
LONG_LATE_SECONDS = 120.0
AFTERWARDS_SECONDS = 1_500.0
"""Two of the three later looks are over then (after 1 and after 10 minutes)."""

APPLIED = {
    "lost reply": f.LostReply(),
    "502 after": f.StatusAfter(502),
    "cut reply": f.ResetMidBody(),
    "time-out after": f.Hang(applied=True),
}
NOT_APPLIED = {
    "lost request": f.LostRequest(),
    "502 before": f.StatusBefore(502),
    "time-out before": f.Hang(),
}
LATE = {
    "late, reset": f.Late(3.0, answer="reset"),
    "late, 504": f.Late(3.0, answer=504),
    "late, after the time-out": f.Late(18.0),
}


def play(sim: ToolSim, probe: Probe, *, faults: tuple[f.AnyFault, ...] = (), answer: str = "") -> RunSnapshot:
    """One run with one call, and two workers of which one may die; a person who is asked says `answer`, if anything."""
    arguments = dict(probe.arguments(sim.world))
    for fault in faults:
        sim.world.faults.add(f.Rule(fault, method=probe.method, path=probe.path))
    ends: list[RunSnapshot] = []

    async def story() -> None:
        for name in ("one", "two"):
            sim.worker(sim.agent([[(probe.tool.name, arguments)], "done"], probe.tool), name=name)
        reviewer = sim.agent([[(probe.tool.name, arguments)], "done"], probe.tool)
        async with sim.surefoot(reviewer, worker=False) as sf:
            run = await sf.wait((await sf.start("reviewer", "Do it.")).id)
            if run.status == "waiting_for_user" and answer:
                assert [action.kind for action in run.pending_actions] == ["resolve"]
                await sf.resolve(run.pending_actions[0].id, answer, by="ann", external_resource_id=_id(answer))
                run = await sf.wait(run.id)
            # What is still on its way arrives, and the sweeps have looked.
            await sim.pass_time(AFTERWARDS_SECONDS)
            ends.append(await sf.snapshot(run.id))

    sim.play(story)
    return ends[0]


def _id(answer: str) -> str | None:
    return "seen-by-ann" if answer == "happened" else None


def judge(sim: ToolSim, probe: Probe, run: RunSnapshot, *, requests: int, effects: int = 1) -> None:
    """So many requests arrived, so many effects came of them, and the step tells what the log tells."""
    assert len(probe.requests(sim.world)) == requests
    assert len(probe.made(sim.world)) == effects
    (step,) = calls_of(run)
    assert (run.status, step.status) == ("completed", "succeeded"), (run.status, step.status, step.error_code)


def judge_asked(sim: ToolSim, probe: Probe, run: RunSnapshot, *, requests: int, effects: int) -> None:
    """A person is asked and nothing more was sent."""
    assert len(probe.requests(sim.world)) == requests and len(probe.made(sim.world)) == effects
    (step,) = calls_of(run)
    assert (run.status, step.status) == ("waiting_for_user", "outcome_unknown")
    assert [(action.kind, action.status) for action in run.pending_actions] == [("resolve", "waiting")]


@EACH
def test_without_a_fault_there_is_one_request(sim: ToolSim, probe: Probe) -> None:
    judge(sim, probe, play(sim, probe), requests=1)


@EACH
def test_killed_before_the_first_byte(sim: ToolSim, probe: Probe) -> None:
    killing = Killing(sim, probe, ("http.send", "before"))
    run = play(sim, probe)
    assert killing.killed
    if probe.grade == "blind":
        judge_asked(sim, probe, run, requests=0, effects=0)
    else:
        judge(sim, probe, run, requests=1)


@EACH
@pytest.mark.parametrize("at", [("http.send", "after"), ("http.reply", "after")], ids=["sent", "answered"])
def test_killed_after_the_target_applied(sim: ToolSim, probe: Probe, at: tuple[str, str]) -> None:
    killing = Killing(sim, probe, at)
    run = play(sim, probe)
    assert killing.killed
    _after_an_effect(sim, probe, run)


@EACH
@pytest.mark.parametrize("fault", APPLIED.values(), ids=APPLIED)
def test_applied_and_not_told(sim: ToolSim, probe: Probe, fault: f.AnyFault) -> None:
    if isinstance(fault, f.ResetMidBody) and probe.kind == "comment_deleted":
        fault = f.LostReply(how="fin")  # a 204 has no body that could be cut
    _after_an_effect(sim, probe, play(sim, probe, faults=(fault,)))


def _after_an_effect(sim: ToolSim, probe: Probe, run: RunSnapshot) -> None:
    """The one effect is there: found, or met again by the same key, or asked about."""
    match probe.grade:
        case "searched":
            judge(sim, probe, run, requests=1)
            assert calls_of(run)[0].resolution == "found"
        case "repeated":
            again = 0 if probe.kind == "review_dismissed" else 1  # it reads the review first, and sees that it is done
            judge(sim, probe, run, requests=1 + again)
        case "blind":
            judge_asked(sim, probe, run, requests=1, effects=1)


@EACH
@pytest.mark.parametrize("fault", NOT_APPLIED.values(), ids=NOT_APPLIED)
def test_not_applied_and_not_told(sim: ToolSim, probe: Probe, fault: f.AnyFault) -> None:
    run = play(sim, probe, faults=(fault,))
    if probe.grade == "blind":
        judge_asked(sim, probe, run, requests=1, effects=0)
    else:
        judge(sim, probe, run, requests=2)
    if probe.grade == "searched":
        first, second = (request.at for request in probe.requests(sim.world))
        assert second - first >= 5, "sent again before the settle time was over"


@EACH
@pytest.mark.parametrize("fault", LATE.values(), ids=LATE)
def test_late_within_the_settle_time(sim: ToolSim, probe: Probe, fault: f.AnyFault) -> None:
    run = play(sim, probe, faults=(fault,))
    match probe.grade:
        case "searched":
            judge(sim, probe, run, requests=1)
        case "repeated":
            judge(sim, probe, run, requests=2)
        case "blind":
            judge_asked(sim, probe, run, requests=1, effects=1)


@EACH
def test_late_beyond_the_settle_time(sim: ToolSim, probe: Probe) -> None:
    """The one thing that no lookup can exclude: a target that drops repeats is safe, of the others it is reported."""
    run = play(sim, probe, faults=(f.Late(LONG_LATE_SECONDS, answer="reset"),))
    if probe.grade == "blind":
        judge_asked(sim, probe, run, requests=1, effects=1)
    elif probe.once:
        judge(sim, probe, run, requests=2)
    else:
        judge(sim, probe, run, requests=2, effects=2)
        assert [action.kind for action in run.pending_actions] == ["duplicate"], "told to a person"


BLIND = next(probe for probe in PROBES if probe.grade == "blind")


def test_a_blind_one_is_sent_again_only_on_a_persons_word(sim: ToolSim) -> None:
    run = play(sim, BLIND, faults=(f.LostRequest(),), answer="did_not_happen")
    judge(sim, BLIND, run, requests=2)


def test_a_blind_one_that_happened_is_not_sent_again(sim: ToolSim) -> None:
    run = play(sim, BLIND, faults=(f.LostReply(),), answer="happened")
    judge(sim, BLIND, run, requests=1)
    assert calls_of(run)[0].external_resource_id == "seen-by-ann"
