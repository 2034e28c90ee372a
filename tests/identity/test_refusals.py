"""A decision that is refused over HTTP leaves one line: the run, the action, whose it was, the code, and no secret."""

from __future__ import annotations

import json

import pytest

from surefoot.cli.output import log_line
from tests.identity.rig import Rig, rig_of, token_of
from tests.places import Place

Ask = tuple[str, dict[str, object], dict[str, str], int, str, str]
REFUSED: list[Ask] = [
    ("read", {"decision": "approve"}, {}, 403, "not_permitted", ""),
    ("approve", {"decision": "happened"}, {}, 422, "wrong_decision", "happened"),
    ("approve", {"decision": "approve", "input_hash": "0" * 64}, {}, 409, "input_changed", "approve"),
    ("approve", {"decision": 7}, {}, 422, "invalid_input", ""),
    ("approve", {"decision": "approve"}, {"Idempotency-Key": '"a'}, 400, "idempotency_key_malformed", ""),
]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged."""
    told: list[str] = []
    monkeypatch.setattr("surefoot.app.Surefoot._tell", lambda sf, line: told.append(line))
    return told


async def refused(rig: Rig, lines: list[str], action_id: str, ask: Ask) -> None:
    token, body, headers, status, code, decision = ask
    lines.clear()
    path = f"/v1/pending-actions/{action_id}/decision"
    answer = await rig.ask("POST", path, body, token=token, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    (line,) = lines
    ids = json.loads(log_line(line))
    assert ids["action_id"] == action_id and line.startswith(f"run {ids['run_id']}: decision {decision!r} of")
    assert line.endswith(f"of '{token}-holder' about '{action_id}' was refused ({code})")
    assert token_of(token) not in line


async def test_each_refusal_is_one_line(place: Place, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    async with rig_of(place, monkeypatch, gated=True) as rig:
        run = await rig.sf.wait((await rig.sf.start("reviewer", "Review it")).id, timeout=20)
        action_id = run.pending_actions[0].id
        for ask in REFUSED:
            await refused(rig, lines, action_id, ask)
        await rig.sf.reject(action_id, by="ann")
        await refused(
            rig, lines, action_id, ("approve", {"decision": "approve"}, {}, 409, "already_decided", "approve")
        )
        await rig.sf.wait(run.id, timeout=20)


async def test_what_a_program_of_ones_own_is_refused_is_told_in_the_same_way(
    place: Place, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    async with rig_of(place, monkeypatch, gated=True) as rig:
        run = await rig.sf.wait((await rig.sf.start("reviewer", "Review it")).id, timeout=20)
        action_id = run.pending_actions[0].id
        lines.clear()
        for outcome, code in (("happened", "invalid_input"), ("give_up", "wrong_decision")):
            with pytest.raises(Exception, match=r"say what happened|is decided by"):
                await rig.sf.resolve(action_id, outcome, by="ann")
            assert (
                lines.pop() == f"run {run.id}: decision {outcome!r} of 'ann' about {action_id!r} was refused ({code})"
            )
        assert lines == []
        await rig.sf.reject(action_id, by="ann")
        await rig.sf.wait(run.id, timeout=20)
