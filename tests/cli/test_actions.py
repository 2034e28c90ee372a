"""surefoot actions: the questions, and decisions that are made once."""

from __future__ import annotations

import os
import pwd
import subprocess

import pytest

from surefoot import Absent, Found, Operation, Receipt, Surefoot, effects, run_sync, tool
from tests.cli.rig import Answer, Cli

FIELDS = {
    "id", "run_id", "step_id", "kind", "status", "tool_name", "arguments", "preview", "input_hash", "expires_at",
    "decision", "decided_by", "reason",
}  # fmt: skip
ME = pwd.getpwuid(os.getuid()).pw_name


def test_list_is_a_bare_array_of_every_status(cli: Cli) -> None:
    assert cli.json("actions", "list").value() == []
    _, first = cli.asked("writer")
    cli.run("actions", "reject", first)
    _, second = cli.asked("writer")
    listed = cli.json("actions", "list").records()
    assert [(a["id"], a["status"]) for a in listed] == [(first, "rejected"), (second, "waiting")]
    assert all(action.keys() >= FIELDS for action in listed)
    assert listed[1]["arguments"] == {"text": "hello"} and listed[1]["kind"] == "approve"
    assert [a["id"] for a in cli.json("actions", "list", "--status", "rejected").records()] == [first]
    assert second in cli.run("actions", "list").out
    assert cli.json("actions", "list", "--run", "run_x").error == "not_found"


def test_the_decision_is_the_system_users_whatever_the_environment_says(cli: Cli) -> None:
    _, action_id = cli.asked("writer")
    answer = cli.run(
        "actions", "approve", action_id, "--reason", "fine", "--json", more={"USER": "eve", "LOGNAME": "eve"}
    )
    action = answer.record()
    assert (action["decision"], action["decided_by"], action["reason"]) == ("approve", ME, "fine")
    assert str(action["decided_from"]).startswith(f"the command line: {ME} on ")
    assert action["status"] == "approved"


def test_by_names_another_and_the_model_is_told_of_a_rejection(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    action = cli.json("actions", "reject", action_id, "--by", "alice", "--reason", "too long").record()
    assert (action["decision"], action["decided_by"]) == ("reject", "alice")
    cli.work("writer")
    run = cli.json("runs", "show", run_id, "--messages").record()
    assert run["status"] == "completed" and cli.sent == []
    assert "too long" in str(run["messages"])
    assert cli.json("actions", "approve", action_id, "--by", " ").error == "wrong_use"


def test_a_second_decision_is_refused_with_what_was_decided(cli: Cli) -> None:
    _, action_id = cli.asked("writer")
    assert cli.json("actions", "approve", action_id, "--by", "alice").code == 0
    second = cli.json("actions", "reject", action_id, "--by", "bob")
    assert (second.code, second.error) == (5, "already_decided")
    details = second.record()["error"]["details"]  # type: ignore[index]  # JSON
    assert (details["decision"], details["decided_by"]) == ("approve", "alice")


def test_the_same_decision_under_its_key_is_answered_as_the_first_time(cli: Cli) -> None:
    _, action_id = cli.asked("writer")
    first = cli.json("actions", "approve", action_id, "--key", "d1")
    again = cli.json("actions", "approve", action_id, "--key", "d1")
    assert (again.code, again.value()) == (0, first.value())
    assert cli.json("actions", "reject", action_id, "--key", "d1").error == "already_decided"
    assert cli.json("actions", "approve", action_id, "--key", "d1", "--by", "bob").error == "already_decided"


def test_the_hash_binds_the_decision_to_what_was_shown(cli: Cli) -> None:
    _, action_id = cli.asked("writer")
    stale = cli.json("actions", "approve", action_id, "--hash", "0" * 64)
    assert (stale.code, stale.error) == (5, "input_changed")
    shown = str(cli.json("actions", "show", action_id).record()["input_hash"])
    assert cli.json("actions", "approve", action_id, "--hash", shown).code == 0


def test_c019_unknown_and_expired_actions_are_refused_and_nothing_runs(cli: Cli) -> None:
    for verb in ("show", "approve", "reject"):
        assert cli.json("actions", verb, "act_x").error == "not_found"
    run_id = cli.start("hurried")
    cli.work("hurried")
    cli.eventually_status(run_id, "completed", agent="hurried")
    action_id = str(cli.json("actions", "list", "--run", run_id).records()[0]["id"])
    late = cli.json("actions", "approve", action_id)
    assert (late.code, late.error) == (5, "action_expired")
    action = cli.json("actions", "show", action_id).record()
    assert (action["status"], action["why"]) == ("expired", "time") and cli.sent == []


def test_c021_of_twenty_processes_one_decides(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    verbs = ["approve", "reject"] * 10
    children = [
        subprocess.Popen(
            cli.command("actions", verb, action_id, "--by", f"person {number}", "--json"),
            cwd=cli.folder, env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number, verb in enumerate(verbs)
    ]  # fmt: skip
    answers = []
    for child in children:
        out, err = child.communicate(timeout=120)
        answers.append(Answer(child.returncode, out.decode(), err.decode()))
    won = [answer for answer in answers if answer.code == 0]
    lost = [answer for answer in answers if answer.code != 0]
    assert len(won) == 1 and {(answer.code, answer.error) for answer in lost} == {(5, "already_decided")}
    cli.work("writer")
    assert len(cli.sent) == (1 if won[0].record()["decision"] == "approve" else 0)
    events = cli.json("runs", "watch", run_id).record()["events"]
    assert [e["type"] for e in events].count("action_decided") == 1  # type: ignore[attr-defined]  # JSON


def test_c024_hidden_characters_are_shown(cli: Cli) -> None:
    _, action_id = cli.asked("sly")
    shown = cli.run("actions", "show", action_id).out
    assert "\u202e" not in shown and "\u200b" not in shown
    assert "⟦U+202E⟧" in shown and "⟦U+200B⟧" in shown and shown.count("warning: ") == 2
    preview = cli.json("actions", "show", action_id).record()["preview"]
    assert isinstance(preview, dict) and len(preview["warnings"]) == 2
    assert preview["arguments"] == {"text": "rm ⟦U+202E⟧ -rf⟦U+200B⟧ /"}
    cli.run("actions", "approve", action_id)
    cli.work("sly")
    assert cli.sent[0].endswith(" rm \u202e -rf\u200b /"), "the bytes that are sent stay as they are"


@pytest.mark.parametrize(
    ("words", "status", "resolution"),
    [
        (("--happened", "--id", "x-7", "--link", "https://x.example/7"), "succeeded", "happened"),
        (("--give-up",), "outcome_unknown", "given_up"),
    ],
)
def test_resolve_closes_a_call_that_nobody_can_look_up(
    cli: Cli, words: tuple[str, ...], status: str, resolution: str
) -> None:
    run_id, action_id = cli.asked("shouter")
    assert "may have been sent" in cli.run("actions", "show", action_id).out
    decided = cli.json("actions", "resolve", action_id, *words)
    assert decided.code == 0 and decided.record()["status"] == "approved"
    cli.work("shouter")
    run = cli.json("runs", "show", run_id).record()
    step = next(s for s in run["steps"] if s["tool_name"] == "shout")  # type: ignore[attr-defined]  # JSON
    assert (run["status"], step["status"], step["resolution"]) == ("completed", status, resolution)
    assert len(cli.sent) == 1


def test_did_not_happen_sends_again_with_the_same_key(cli: Cli) -> None:
    run_id, action_id = cli.asked("shouter")
    assert cli.json("actions", "resolve", action_id, "--did-not-happen").code == 0
    cli.work("shouter")
    assert len(cli.sent) == 2 and len({line.split()[0] for line in cli.sent}) == 1
    waiting = cli.json("actions", "list", "--run", run_id, "--status", "waiting").records()
    assert [a["kind"] for a in waiting] == ["resolve"] and waiting[0]["id"] != action_id


def test_resolve_and_approve_do_not_take_each_others_questions(cli: Cli) -> None:
    _, gated = cli.asked("writer")
    wrong = cli.json("actions", "resolve", gated, "--give-up")
    assert (wrong.code, wrong.error) == (5, "wrong_decision")
    _, doubtful = cli.asked("shouter")
    assert cli.json("actions", "approve", doubtful).error == "wrong_decision"


def test_resolve_is_told_what_happened(cli: Cli) -> None:
    for words in (("act_x",), ("act_x", "--happened"), ("act_x", "--give-up", "--id", "7"), ("--give-up",)):
        answer = cli.json("actions", "resolve", *words)
        assert (answer.code, answer.error) == (2, "wrong_use"), words


def test_answer_lets_a_model_be_tried_again(cli: Cli) -> None:
    run_id, action_id = cli.asked("locked_out")
    assert f"surefoot actions answer {action_id} stop" in cli.run("actions", "show", action_id).out
    answered = cli.json("actions", "answer", action_id, "stop")
    assert answered.code == 0 and answered.record()["answer"] == "stop"
    assert cli.json("runs", "watch", run_id).code == 1


def test_a_model_that_cannot_be_called_is_tried_again(cli: Cli) -> None:
    run_id, action_id = cli.asked("locked_out")
    assert cli.json("actions", "answer", action_id, "try_again").record()["answer"] == "try_again"
    cli.work("locked_out")
    (waiting,) = cli.json("actions", "list", "--status", "waiting", "--run", run_id).records()
    assert waiting["id"] != action_id, "called again, refused again, asked again"
    assert cli.status(run_id) == "waiting_for_user"


def test_a_question_about_a_duplicate_names_each_effect_with_its_link(cli: Cli, store_url: str) -> None:
    def find(op: Operation) -> Absent:
        return Absent(coverage="nobody looks")

    @tool(effect=effects.lookup(find, settle=0.1))
    async def charge(op: Operation) -> Receipt:
        """Charge a card."""
        return Receipt(resource_id="c1")

    async def charged_twice() -> str:
        async with Surefoot(store_url, tools=[charge], log=lambda line: None) as sf:
            await sf.perform(charge.call(), key="81")
            await sf.report("charge:81", Found(Receipt(resource_id="c2", url="https://pay.example/c2")))
            (asked,) = await sf.actions(status="waiting")
            return asked.action.id

    told = cli.run("actions", "show", run_sync(charged_twice())).out
    assert "  effect: c1\n" in told and "  effect: c2 https://pay.example/c2\n" in told
