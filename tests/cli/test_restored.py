"""A copy of the store is put back: what it shows as not begun is looked up or asked about, never sent blindly."""

from __future__ import annotations

import pytest

from tests.cli.rig import Cli


def _step(cli: Cli, run_id: str) -> dict[str, object]:
    steps = cli.json("runs", "show", run_id).record()["steps"]
    assert isinstance(steps, list)
    (step,) = [step for step in steps if step["type"] == "tool_call"]
    assert isinstance(step, dict)
    return step


@pytest.mark.parametrize("restored", [True, False])
def test_an_approved_call_that_was_sent_after_the_copy_is_found(cli: Cli, restored: bool) -> None:
    run_id, action_id = cli.asked("patient")
    assert cli.run("actions", "approve", action_id).code == 0
    cli.place.save()
    cli.work("patient")
    assert _step(cli, run_id)["status"] == "succeeded" and len(cli.sent) == 1
    cli.place.put_back()
    assert _step(cli, run_id)["status"] == "pending", "the copy does not know that it was sent"
    if restored:
        answer = cli.json("db", "restored")
        assert answer.code == 0
        assert answer.record() == {
            "counted_as_sent": [_step(cli, run_id)["id"]], "approvals_to_check": [], "runs_under_way": [run_id],
            "unreadable": [],
        }  # fmt: skip
        assert (_step(cli, run_id)["status"], _step(cli, run_id)["error_code"]) == ("outcome_unknown", "restored")
        again = cli.json("db", "restored").record()
        assert again["counted_as_sent"] == [] and "possibly sent: none" in cli.run("db", "restored").out
    cli.work("patient")
    step = _step(cli, run_id)
    assert (step["status"], step["external_resource_id"]) == ("succeeded", "note-1")
    assert len(cli.sent) == (1 if restored else 2), "without the command it is the blind send that the manual warns of"
    assert cli.json("doctor").code == 0


def test_what_was_not_sent_after_all_is_proven_absent_and_sent(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    assert cli.run("actions", "approve", action_id).code == 0
    cli.place.save()
    cli.place.put_back()
    assert cli.json("db", "restored").code == 0
    cli.work("writer")
    assert _step(cli, run_id)["status"] == "succeeded" and len(cli.sent) == 1


def test_an_approval_that_waits_is_named(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    cli.place.save()
    cli.place.put_back()
    answer = cli.json("db", "restored").record()
    assert answer == {
        "counted_as_sent": [], "approvals_to_check": [action_id], "runs_under_way": [run_id], "unreadable": [],
    }  # fmt: skip
    assert action_id in cli.run("db", "restored").out


@pytest.mark.parametrize("column", ["limits", "signals", "queued"])
def test_a_run_that_cannot_be_read_keeps_no_other_from_being_counted(cli: Cli, column: str) -> None:
    (damaged, _), (run_id, action_id) = cli.asked("writer"), cli.asked("writer")
    assert cli.run("actions", "approve", action_id).code == 0
    cli.place.save()
    cli.place.put_back()
    assert cli.place.execute(f"UPDATE run SET {column} = '{{' WHERE id = ?", damaged)
    answer = cli.json("db", "restored")
    assert answer.code == 0 and answer.record()["unreadable"] == [damaged]
    assert answer.record()["counted_as_sent"] == [_step(cli, run_id)["id"]]
    assert damaged in cli.run("db", "restored").out
