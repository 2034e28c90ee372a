"""The command line against a server: the same commands, the same documents, the same exit codes as on the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.rig import Cli
from tests.server.rig import Served, serving


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all of them."""
    with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def cli(web: Served) -> Cli:
    """The command line in the server's folder."""
    return Cli(web.folder)


def both(cli: Cli, web: Served, *words: str) -> object:
    """What a command that changes nothing says to the store and to the server, which is the same."""
    local, remote = cli.json(*words), cli.json(*words, "--url", web.url)
    assert (local.code, local.value()) == (remote.code, remote.value())
    people = cli.run(*words), cli.run(*words, "--url", web.url)
    assert people[0].out == people[1].out
    return remote.value()


def test_a_story_by_the_command_line_alone(cli: Cli, web: Served) -> None:
    at = ("--url", web.url)
    started = cli.json("runs", "start", "agents.py:writer", "Go", "--key", "k", *at)
    run_id = str(started.record()["id"])
    assert started.code == 0
    assert cli.json("runs", "start", "writer", "Go", "--key", "k", *at).record()["id"] == run_id, "the name is enough"
    waiting = cli.json("runs", "watch", run_id, *at)
    assert waiting.code == 3 and "Calling" not in waiting.err and "a person has to approve it" in waiting.err
    (action,) = cli.json("actions", "list", "--status", "waiting", "--run", run_id, *at).records()
    approved = cli.json("actions", "approve", str(action["id"]), "--key", "d", "--reason", "fine", *at)
    assert (approved.code, approved.record()["decision"]) == (0, "approve")
    assert cli.json("actions", "approve", str(action["id"]), "--key", "d", "--reason", "fine", *at) == approved
    late = cli.json("actions", "reject", str(action["id"]), *at)
    assert (late.code, late.error) == (5, "already_decided")
    watched = cli.json("runs", "watch", run_id, *at)
    assert (watched.code, watched.record()["status"]) == (0, "completed")
    told = watched.record()["events"]
    assert isinstance(told, list) and [e["sequence"] for e in told] == list(range(1, len(told) + 1))
    both(cli, web, "runs", "show", run_id)
    both(cli, web, "runs", "show", run_id, "--messages")
    both(cli, web, "runs", "watch", run_id)
    both(cli, web, "runs", "list", "--agent", "writer")
    both(cli, web, "runs", "list", "--limit", "1")
    both(cli, web, "actions", "list")
    both(cli, web, "actions", "show", str(action["id"]))
    both(cli, web, "runs", "show", "run_none")
    both(cli, web, "actions", "show", "act_none")
    both(cli, web, "actions", "list", "--run", "run_none")
    late = cli.json("runs", "message", run_id, "thanks", *at)
    assert (late.code, late.error) == (5, "run_ended")
    both(cli, web, "runs", "cancel", run_id)
    both(cli, web, "runs", "retry", run_id)


def test_a_run_is_waited_for(cli: Cli, web: Served) -> None:
    done = cli.json("runs", "start", "talker", "Hello", "--wait", "--url", web.url)
    assert (done.code, done.record()["result"]) == (0, {"text": "Hello."})


def test_questions_are_resolved_and_answered(cli: Cli, web: Served) -> None:
    at = ("--url", web.url)
    run_id, action_id = web.asked("shouter")
    wrong = cli.json("actions", "approve", action_id, *at)
    assert (wrong.code, wrong.error) == (5, "wrong_decision")
    given = cli.json(
        "actions", "resolve", action_id, "--happened", "--id", "echo", "--link", "https://x.example/1", *at
    )
    assert given.record()["decision"] == "happened"
    web.until(run_id, "completed")
    _, broken = web.asked("locked_out")
    answered = cli.json("actions", "answer", broken, "try_again", *at)
    assert answered.record().get("answer") == "try_again", answered


def test_a_cancel_lists_what_may_have_been_sent(cli: Cli, web: Served) -> None:
    run_id, _ = web.asked("shouter", key="another")
    receipt = cli.json("runs", "cancel", run_id, "--url", web.url).record()
    sent = receipt["may_have_been_sent"]
    assert isinstance(sent, list) and [step["tool_name"] for step in sent] == ["shout"]


def test_wrong_use_is_refused_before_anything_is_asked(cli: Cli, web: Served) -> None:
    for words in (
        ("doctor", "--url", web.url),
        ("runs", "list", "--url", web.url, "--store", "sqlite:///x.db"),
        ("runs", "start", "writer", "Go", "--by", "eve", "--url", web.url),
    ):
        assert (cli.json(*words).code, cli.json(*words).error) == (2, "wrong_use"), words
    for url in ("127.0.0.1:8100", "ftp://x", "http://"):
        assert cli.json("runs", "list", "--url", url).error == "bad_setting"


def test_a_server_out_of_reach_is_said_so(cli: Cli, web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.cli.remote.PAUSE_SECONDS", 0.001)
    nobody = cli.json("runs", "list", "--url", "http://127.0.0.1:1")
    assert (nobody.code, nobody.error) == (4, "server_unreachable")
    no_server = cli.json("runs", "list", "--url", f"{web.url}/elsewhere")
    assert (no_server.code, no_server.error) == (5, "no_such_path")
    assert cli.run("runs", "list", more={"SUREFOOT_URL": "http://127.0.0.1:1"}).code == 4
