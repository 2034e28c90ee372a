"""How the command line is used and misused: --json, exit codes, and messages that name the next action."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from surefoot.cli.arguments import COMMANDS, split_json
from surefoot.cli.output import log_line
from tests.cli.rig import Cli


@pytest.mark.real_process
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_json_may_stand_in_any_place_and_stdout_is_one_document(cli: Cli, at: int) -> None:
    words = ["runs", "start", "agents.py:talker", "Hi", "--wait"]
    answer = cli.process(*words[:at], "--json", *words[at:])
    assert answer.code == 0 and answer.record()["status"] == "completed"
    assert "started" in answer.err, "progress is on stderr"


def test_json_behind_two_dashes_is_a_text() -> None:
    assert split_json(["runs", "--json", "start"]) == (True, ["runs", "start"])
    assert split_json(["start", "--", "--json"]) == (False, ["start", "--", "--json"])


def test_help_lists_what_there_is(cli: Cli) -> None:
    text = cli.process("--help").out
    assert all(f"\n    {name} " in text for name in COMMANDS) and "exit codes:" in text


def test_log_lines_as_json_have_their_ids() -> None:
    step = "step_01m8mkc46c9g18hv3d1v21jm0m_00004"
    told = json.loads(log_line(f"{step}: the account is not known yet (Timeout)"))
    assert told.keys() == {"time", "message", "step_id", "run_id"}
    assert (told["step_id"], told["run_id"]) == (step, "run_01m8mkc46c9g18hv3d1v21jm0m")
    told = json.loads(log_line("decision 'approve' of 'ann' about 'act_01m8mkc4h2yb3rs8hfn14a627s' was refused"))
    assert told["action_id"] == "act_01m8mkc4h2yb3rs8hfn14a627s" and "run_id" not in told


def test_a_worker_logs_json_lines(cli: Cli) -> None:
    run_id = cli.start("writer")
    found = cli.process("worker", "agents.py", "--until-idle", "--log-format", "json")
    lines = [json.loads(line) for line in found.err.splitlines()]
    assert lines and all({"time", "message"} <= line.keys() for line in lines)
    assert any(line.get("run_id") == run_id for line in lines)


def test_version(cli: Cli) -> None:
    assert cli.json("--version").record().keys() == {"version"}


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("serve",),
        ("runs",),
        ("runs", "start"),
        ("runs", "start", "agents.py:talker"),
        ("runs", "start", "agents.py:talker", "Hi", "--metadata", "{"),
        ("runs", "start", "agents.py:talker", "Hi", "--metadata", "[]"),
        ("runs", "start", "agents.py:talker", "Hi", "--by", ""),
        ("runs", "list", "--limit", "0"),
        ("runs", "list", "--status", "happy"),
        ("runs", "watch", "run_x", "--after", "-1"),
        ("runs", "show"),
        ("actions", "list", "--status", "open"),
        ("actions", "approve"),
        ("actions", "answer", "act_x"),
        ("prune", "--keep-days", "nan"),
        ("worker",),
        ("worker", "agents.py", "--lease-seconds", "0"),
        ("db",),
        ("doctor", "--nothing"),
        ("demo", "--story", "none"),
    ],
)
def test_wrong_use_is_2_and_says_where_help_is(cli: Cli, words: tuple[str, ...]) -> None:
    answer = cli.json(*words)
    assert (answer.code, answer.error) == (2, "wrong_use")
    plain = cli.run(*words)
    assert plain.code == 2 and plain.out == "" and plain.err.startswith("surefoot: ")
    assert not (cli.folder / "surefoot.db").exists() or "metadata" not in str(words), "nothing is written"


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_is_wrong_use(cli: Cli, text: str) -> None:
    answer = cli.json("runs", "start", "agents.py:talker", text)
    assert (answer.code, answer.error) == (2, "invalid_input")


@pytest.mark.parametrize("command", [("worker",), ("runs", "start")])
@pytest.mark.parametrize(
    ("file", "code", "says"),
    [
        ("nobody.py", "file_not_found", "there is no file nobody.py"),
        ("nobody.py", "file_not_found", "give the file that defines the agent"),
        ("nobody", "file_not_found", "there is no module 'nobody'"),
        ("not-a-module", "file_not_found", "neither a Python file nor"),
        ("agents.py:", "file_not_found", "is not FILE or FILE:name"),
        ("agents.py:nobody", "unknown_agent", "it has: gatekeeper"),
        ("empty.py", "no_agent", "has no agent at module level"),
        ("broken.py", "import_failed", "line 2: NameError: name 'agent' is not defined"),
        ("typo.py", "import_failed", "line 1: SyntaxError"),
        ("leaves.py", "import_failed", "SystemExit: 3"),
        ("lacks.py", "import_failed", "No module named 'no_such_library'"),
        ("twins.py", "which_agent", "are two agents called 'a'"),
    ],
)
def test_a_file_that_cannot_be_used(cli: Cli, command: tuple[str, ...], file: str, code: str, says: str) -> None:
    files = {
        "empty.py": "x = 1\n",
        "broken.py": "x = 1\ny = agent\n",
        "typo.py": "def\n",
        "leaves.py": "raise SystemExit(3)\n",
        "lacks.py": "import no_such_library\n",
        "twins.py": "from surefoot import Agent\na = Agent('a', 'openai:x')\nb = Agent('a', 'openai:x')\n",
    }
    for name, text in files.items():
        (cli.folder / name).write_text(text)
    words = (*command, file, "Hi") if command[-1] == "start" else (*command, file)
    answer = cli.json(*words)
    assert (answer.code, answer.error) == (2, code)
    assert says in cli.run(*words).err


def test_two_agents_and_no_name(cli: Cli) -> None:
    answer = cli.json("runs", "start", "agents.py", "Hi")
    assert (answer.code, answer.error) == (2, "which_agent")
    assert "agents.py:writer" in cli.run("runs", "start", "agents.py", "Hi").err


def test_a_module_and_a_variable_are_names_too(cli: Cli) -> None:
    assert cli.json("runs", "start", "agents:talker", "Hi").code == 0
    package = cli.folder / "team"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "people.py").write_text("from surefoot import Agent\nboss = Agent('the-boss', 'openai:x')\n")
    for name in ("team.people", "team.people:boss", "team.people:the-boss", "team/people.py"):
        assert cli.json("runs", "start", name, "Hi").record()["agent"] == "the-boss"


@pytest.mark.parametrize(
    ("store", "code", "exit_code"),
    [
        ("mysql://host/db", "invalid_input", 2),
        ("surefoot.db", "invalid_input", 2),
        ("sqlite:////no/such/folder/surefoot.db", "store_unavailable", 4),
        ("sqlite:///foreign.db", "store_unsupported", 5),
    ],
)
def test_a_store_that_cannot_be_used(cli: Cli, store: str, code: str, exit_code: int) -> None:
    with contextlib.closing(sqlite3.connect(cli.folder / "foreign.db")) as foreign, foreign:
        foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    for words in (("runs", "list"), ("actions", "list"), ("doctor",), ("db", "upgrade"), ("prune",)):
        answer = cli.json(*words, "--store", store)
        assert (answer.code, answer.error) == (exit_code, code), words
    assert cli.process("worker", "agents.py", "--store", store).code == exit_code


def test_secrets_do_not_come_out_of_an_import_that_fails(cli: Cli) -> None:
    (cli.folder / "leaky.py").write_text("import os\nraise ValueError(os.environ['GITHUB_TOKEN'])\n")
    canary = "CANARY-7c1e9b44d0a2f3"
    for words in (("worker", "leaky.py"), ("worker", "leaky.py", "--json")):
        answer = cli.process(*words, more={"GITHUB_TOKEN": canary})
        assert answer.code == 2 and canary not in answer.out + answer.err
        assert "[redacted:GITHUB_TOKEN]" in answer.out + answer.err


def test_a_token_that_no_header_may_hold_is_a_bad_setting(cli: Cli) -> None:
    token = {"SUREFOOT_TOKEN": "bad\ntoken"}
    refused = cli.process("runs", "list", "--url", "http://127.0.0.1:1", "--json", more=token)
    assert (refused.code, refused.error) == (2, "bad_setting") and "SUREFOOT_TOKEN" in refused.out
