"""surefoot runs: what each verb prints, refuses and means."""

from __future__ import annotations

from tests.cli.rig import Cli

SNAPSHOT = {
    "id", "agent", "status", "version", "last_committed_sequence", "last_event_sequence", "display", "can_cancel",
    "next", "steps", "pending_actions", "result",
}  # fmt: skip
STEP = {
    "id", "sequence", "type", "status", "tool_name", "call_id", "attempt", "operation_key", "external_resource_id",
    "resolution", "error_code", "display", "evidence",
}  # fmt: skip


def test_start_prints_the_snapshot_and_does_no_work(cli: Cli) -> None:
    answer = cli.json("runs", "start", "agents.py:writer", "Write", "--metadata", '{"pr": 2512292042121000001}')
    run = answer.record()
    assert answer.code == 0 and run.keys() >= SNAPSHOT
    assert (run["agent"], run["status"], run["steps"], run["result"]) == ("writer", "running", [], None)
    assert run["metadata"] == {"pr": 2512292042121000001}
    assert cli.status(str(run["id"])) == "running" and cli.sent == []


def test_a_run_from_start_to_end(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    watched = cli.json("runs", "watch", run_id)
    assert watched.code == 3 and watched.record()["status"] == "waiting_for_user"
    assert cli.json("actions", "approve", action_id).code == 0
    cli.work("writer")
    watched = cli.json("runs", "watch", run_id)
    run = watched.record()
    assert watched.code == 0 and run["status"] == "completed" and run["result"] == {"text": "Written."}
    events = run["events"]
    assert isinstance(events, list) and [e["sequence"] for e in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "run_completed"
    steps = run["steps"]
    assert isinstance(steps, list) and all(step.keys() >= STEP for step in steps)
    posted = next(step for step in steps if step["tool_name"] == "post_note")
    assert (posted["status"], posted["attempt"], posted["external_resource_id"]) == ("succeeded", 1, "note-1")
    assert cli.sent == [f"{posted['operation_key']} hello"]


def test_start_with_wait_works_here_and_says_by_its_exit_how_it_ended(cli: Cli) -> None:
    done = cli.json("runs", "start", "agents.py:talker", "Hi", "--wait")
    assert done.code == 0 and done.record()["status"] == "completed"
    asked = cli.json("runs", "start", "agents.py:writer", "Hi", "--wait")
    assert asked.code == 3 and asked.record()["status"] == "waiting_for_user"
    assert [a["kind"] for a in asked.record()["pending_actions"]] == ["approve"]  # type: ignore[attr-defined]  # JSON


def test_a_run_that_failed_exits_with_1(cli: Cli) -> None:
    (cli.folder / "mute.py").write_text(
        "from surefoot import Agent\nfrom surefoot.testing.model import FakeModel\n"
        "mute = Agent(name='mute', model=FakeModel([]))\n"
    )
    done = cli.json("runs", "start", "mute.py", "Hi", "--wait")
    assert done.code == 1 and done.record()["status"] == "failed"
    assert done.record()["error_code"] == "model_refused_request"
    again = f"  > surefoot runs retry {done.record()['id']}"
    for verb in ("watch", "show"):
        assert again in cli.run("runs", verb, str(done.record()["id"])).out.splitlines()


def test_the_same_key_answers_with_the_run_made_first(cli: Cli) -> None:
    first = cli.json("runs", "start", "agents.py:talker", "Hi", "--key", "k").record()
    assert cli.json("runs", "start", "agents.py:talker", "Hi", "--key", "k").record()["id"] == first["id"]
    other = cli.json("runs", "start", "agents.py:talker", "Bye", "--key", "k")
    assert (other.code, other.error) == (5, "key_reused")
    assert len(cli.json("runs", "list").records()) == 1


def test_a_conversation_goes_on_in_the_next_run(cli: Cli) -> None:
    first = cli.json("runs", "start", "agents.py:talker", "Hi", "--wait").record()
    conversation = str(first["conversation_id"])
    second = cli.json("runs", "start", "agents.py:talker", "More", "--conversation", conversation)
    assert second.record()["conversation_id"] == conversation
    busy = cli.json("runs", "start", "agents.py:talker", "Now", "--conversation", conversation)
    assert (busy.code, busy.error) == (5, "conversation_busy")
    unknown = cli.json("runs", "start", "agents.py:talker", "Now", "--conversation", "conv_none")
    assert (unknown.code, unknown.error) == (5, "not_found")


def test_list_is_newest_first_and_filters(cli: Cli) -> None:
    ids = [cli.start("talker"), cli.start("writer"), cli.start("talker")]
    listed = cli.json("runs", "list").records()
    assert [run["id"] for run in listed] == ids[::-1]
    assert [run["id"] for run in cli.json("runs", "list", "--agent", "writer").records()] == [ids[1]]
    assert [run["id"] for run in cli.json("runs", "list", "--limit", "1", "--before", ids[2]).records()] == [ids[1]]
    assert cli.json("runs", "list", "--status", "failed").records() == []
    assert ids[0] in cli.run("runs", "list").out and "Working" in cli.run("runs", "list").out


def test_show_with_messages_has_the_conversation(cli: Cli) -> None:
    run_id = str(cli.json("runs", "start", "agents.py:talker", "Hi you", "--wait").record()["id"])
    shown = cli.json("runs", "show", run_id, "--messages").record()
    messages = shown["messages"]
    assert isinstance(messages, list)
    assert [(m["role"], m["body"]["text"]) for m in messages] == [("user", "Hi you"), ("assistant", "Hello.")]
    assert "Hi you" in cli.run("runs", "show", run_id, "--messages").out


def test_message_waits_for_its_place_and_is_refused_after_the_end(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    assert cli.run("runs", "message", run_id, "-", stdin="make it shorter").code == 0
    assert cli.json("actions", "list", "--status", "waiting").records()[0]["id"] == action_id
    cli.run("actions", "approve", action_id)
    cli.work("writer")
    roles = [m["role"] for m in cli.json("runs", "show", run_id, "--messages").record()["messages"]]  # type: ignore[attr-defined]  # JSON
    assert roles[:4] == ["user", "assistant", "tool_result", "user"]
    assert cli.json("runs", "cancel", run_id).error in ("run_ended",)
    late = cli.json("runs", "message", run_id, "too late")
    assert (late.code, late.error) == (5, "run_ended")


def test_cancel_lists_what_may_have_been_sent(cli: Cli) -> None:
    run_id = cli.start("gatekeeper")
    with cli.worker("agents.py:gatekeeper"):
        cli.eventually_sent()
        acknowledged = cli.json("runs", "cancel", run_id)
        answer = acknowledged.record()
        assert acknowledged.code == 0 and answer["status"] == "cancelled" and answer["run_id"] == run_id
        listed = answer["may_have_been_sent"]
        assert isinstance(listed, list) and [step["tool_name"] for step in listed] == ["wait_for_gate"]
        assert listed[0]["operation_key"] == cli.sent[0].split()[0]
        (cli.folder / "gate").touch()
    assert cli.json("runs", "watch", run_id).code == 1


def test_cancel_of_a_waiting_run_sends_nothing_and_expires_its_question(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    cancelled = cli.run("runs", "cancel", run_id)
    assert cancelled.code == 0 and "no call was under way" in cancelled.out
    action = cli.json("actions", "show", action_id).record()
    assert (action["status"], action["why"]) == ("expired", "cancelled")
    refused = cli.json("actions", "approve", action_id)
    assert (refused.code, refused.error) == (5, "action_expired")
    again = cli.json("runs", "cancel", run_id)
    assert (again.code, again.error) == (5, "run_ended")
    cli.work("writer")
    assert cli.sent == []


def test_a_cancelled_run_is_taken_up_once(cli: Cli) -> None:
    run_id = cli.start("talker")
    assert cli.json("runs", "retry", run_id).error == "run_under_way"
    cli.run("runs", "cancel", run_id)
    again = cli.json("runs", "retry", run_id, "--by", "ann").record()
    assert again["id"] != run_id and again["created_by"] == "ann"
    assert f"{again['id']}  takes up {run_id}" in cli.run("runs", "retry", run_id).out
    cli.work("talker")
    assert cli.json("runs", "show", str(again["id"])).record()["result"] == {"text": "Hello."}
    assert cli.json("runs", "retry", str(again["id"])).error == "run_completed"


def test_an_unknown_run_is_refused_by_every_verb(cli: Cli) -> None:
    for verb, *more in (("show",), ("watch",), ("cancel",), ("retry",), ("message", "hi")):
        words = (verb, "run_x", *more)
        answer = cli.json("runs", *words)
        assert (answer.code, answer.error) == (5, "not_found"), words


def test_tenants_do_not_see_each_other(cli: Cli) -> None:
    run_id = cli.start("talker")
    assert cli.json("runs", "list", "--tenant", "other").records() == []
    assert cli.json("runs", "show", run_id, "--tenant", "other").error == "not_found"


def test_people_read_times_texts_and_the_next_action(cli: Cli) -> None:
    run_id, action_id = cli.asked("writer")
    shown = cli.run("runs", "show", run_id).out
    assert "Waiting for your confirmation" in shown and f"> surefoot actions approve {action_id}" in shown
    assert "waits for a person since 2" in shown and "%" not in shown
    chinese = cli.run("runs", "show", run_id, more={"SUREFOOT_LANG": "zh-CN"}).out
    assert "等待您的确认" in chinese
    assert "等待您的确认" in cli.run("runs", "show", run_id, more={"LANG": "zh_CN.UTF-8"}).out
