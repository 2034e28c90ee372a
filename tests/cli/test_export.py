"""surefoot export: everything of the chosen runs, redacted once more, whole or not at all."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.rig import Answer, Cli
from tests.cli.test_full_disk import _full

SECRET = "q8Zt-unknown-when-it-was-stored-5Lw"


def _lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def _value(record: dict[str, object]) -> dict[str, object]:
    value = record["value"]
    assert isinstance(value, dict)
    return value


def _runs(answer: Answer) -> list[object]:
    return [line["run_id"] for line in _lines(answer.out) if line["record"] == "run"]


def test_all_of_a_run_is_there_and_says_the_same_as_the_other_commands(cli: Cli) -> None:
    run_id, action_id = cli.asked("shouter")
    assert cli.run("actions", "resolve", action_id, "--happened", "--id", "X7").code == 0
    cli.work("shouter")
    records = _lines(cli.run("export").out)
    begin, *of_run, end = records
    assert _value(begin) | {"at": 0, "surefoot": 0} == {
        "format": "surefoot-export", "version": 1, "surefoot": 0, "tenant": "default", "at": 0,
        "run_ids": [], "status": None, "since": None,
    }  # fmt: skip
    assert end == {"record": "end", "run_id": None, "value": {"runs": 1, "unreadable": 0, "error": None}}
    assert {record["run_id"] for record in of_run} == {run_id}
    kinds = {kind: [r["value"] for r in of_run if r["record"] == kind] for kind in Counter(r["record"] for r in of_run)}
    shown = cli.json("runs", "show", run_id, "--messages").record()
    assert kinds["message"] == shown.pop("messages") and kinds["run"] == [shown]
    watched = cli.json("runs", "watch", run_id).record()
    assert kinds["event"] == watched["events"]
    assert kinds["action"] == cli.json("actions", "list", "--run", run_id).records()
    assert [value["id"] for value in kinds["action"]] == [action_id]  # type: ignore[index]  # JSON
    assert [(value["verdict"], value["resource_id"]) for value in kinds["evidence"]] == [("found", "X7")]  # type: ignore[index]  # JSON


def test_with_json_it_is_one_document_of_the_same_records(cli: Cli) -> None:
    cli.start("talker"), cli.start("talker")
    cli.work("talker")
    one = cli.json("export").records()
    lines = _lines(cli.run("export").out)
    assert one[1:] == lines[1:] and one[0]["record"] == "begin" and len(one) > 6


def test_runs_are_chosen_by_id_status_and_time(cli: Cli) -> None:
    ended = str(cli.json("runs", "start", "agents.py:talker", "Hi", "--wait").record()["id"])
    live, last = cli.start("talker"), cli.start("talker")
    assert _runs(cli.run("export")) == [last, live, ended]
    assert _runs(cli.run("export", "--status", "completed")) == [ended]
    assert _runs(cli.run("export", ended, live, ended)) == [ended, live]
    assert _runs(cli.run("export", "--since", "2001-01-31T08:00Z")) == [last, live, ended]
    assert _runs(cli.run("export", "--since", "2999-01-01")) == []
    unknown = cli.json("export", live, "run_" + "0" * 26)
    assert (unknown.code, unknown.error) == (5, "not_found")
    wrong = cli.json("export", "--since", "yesterday")
    assert (wrong.code, wrong.error) == (2, "wrong_use") and "2026-01-31" in wrong.out


def test_more_runs_and_events_than_a_page_holds(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.cli import export

    ids = [cli.start("talker") for _ in range(5)]
    asked, _ = cli.asked("shouter")
    cli.work("talker")
    whole = cli.run("export").out.splitlines()[1:]
    monkeypatch.setattr(export, "PAGE", 2)
    monkeypatch.setattr(export, "EVENTS_PAGE", 2)
    answer = cli.run("export")
    assert _runs(answer) == [asked, *reversed(ids)] and answer.out.splitlines()[1:] == whole


def test_a_conversation_of_several_runs_gives_each_its_own_messages(cli: Cli) -> None:
    first = cli.json("runs", "start", "agents.py:talker", "one", "--wait").record()
    more = ("--conversation", str(first["conversation_id"]))
    second = cli.json("runs", "start", "agents.py:talker", "two", *more).record()
    of_run = [(r["run_id"], _value(r)["position"]) for r in _lines(cli.run("export").out) if r["record"] == "message"]
    assert of_run == [(second["id"], 2), (first["id"], 0), (first["id"], 1)]


def test_a_secret_that_is_known_now_does_not_leave_though_it_was_stored(cli: Cli) -> None:
    run_id = cli.start("talker", f"My key is {SECRET}.")
    assert SECRET in cli.run("export").out, "nobody knew it when it was stored"
    for words in (("export",), ("export", "--json"), ("export", run_id, "--output", "out.jsonl")):
        answer = cli.run(*words, more={"OPENAI_API_KEY": SECRET})
        assert answer.code == 0 and SECRET not in answer.out + answer.err
    written = (cli.folder / "out.jsonl").read_text()
    assert SECRET not in written and "[redacted:OPENAI_API_KEY]" in written


def test_a_file_is_there_whole_for_its_owner_alone_or_not_at_all(cli: Cli) -> None:
    cli.start("talker")
    answer = cli.json("export", "--output", "out.jsonl")
    file = cli.folder / "out.jsonl"
    assert answer.record() == {"file": "out.jsonl", "runs": 1, "unreadable": 0}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and _lines(file.read_text())[-1]["record"] == "end"
    before = file.read_bytes()
    again = cli.json("export", "--output", "out.jsonl")
    assert (again.code, again.error) == (2, "output_exists") and file.read_bytes() == before
    assert cli.json("export", "--output", "/dev/full").error == "output_exists"
    missing = cli.json("export", "--output", "nowhere/out.jsonl")
    assert (missing.code, missing.error) == (2, "wrong_use")
    assert not [path for path in cli.folder.iterdir() if "part" in path.name]


@pytest.mark.sqlite_only("the driver of PostgreSQL wants a temporary folder that can be written")
@pytest.mark.real_process
def test_a_full_disk_leaves_no_half_file_and_stdout_still_answers(cli: Cli) -> None:
    cli.start("talker")
    for words, code in ((("--output", "out.jsonl"), 4), ((), 0)):
        full = subprocess.run(
            [sys.executable, "-B", "-m", "surefoot", "export", *words, "--json"], cwd=cli.folder, env=cli.environment,
            capture_output=True, text=True, timeout=60, preexec_fn=_full,
        )  # fmt: skip
        assert full.returncode == code, (full.stdout, full.stderr)
        told = json.loads(full.stdout)
        assert told[-1]["record"] == "end" if code == 0 else told["error"]["code"] == "output_unavailable"
    assert not [path for path in cli.folder.iterdir() if "out.jsonl" in path.name]


@pytest.mark.real_process
def test_a_full_stdout_is_said(cli: Cli) -> None:
    cli.start("talker")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            cli.command("export"), cwd=cli.folder, env=cli.environment, stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 4 and b"cannot be written" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE event SET data = '{' WHERE run_id = ?",
        "UPDATE run SET limits = '{' WHERE id = ?",
        "UPDATE run SET metadata = '{' WHERE id = ?",
        "UPDATE run SET signals = '{' WHERE id = ?",
        "UPDATE message SET body = '{' WHERE run_id = ?",
    ],
)
def test_a_run_that_cannot_be_read_does_not_hide_the_others(cli: Cli, damage: str, named: bool) -> None:
    first, second = cli.start("talker"), cli.start("talker")
    assert cli.place.execute(damage, second)
    answer = cli.run("export", *((second, first) if named else ()))
    records = _lines(answer.out)
    assert answer.code == 5 and "doctor" in answer.err
    assert [r["run_id"] for r in records if r["record"] == "unreadable"] == [second]
    assert first in _runs(answer) and _value(records[-1])["unreadable"] == 1


def test_what_nobody_foresaw_in_a_row_does_not_hide_the_other_runs(cli: Cli) -> None:
    first = cli.start("talker")
    second, _ = cli.asked("shouter")
    assert cli.place.execute("UPDATE pending_action SET status = 'approved', decision = NULL WHERE run_id = ?", second)
    answer = cli.run("export")
    records = _lines(answer.out)
    assert answer.code == 5 and records[-1]["record"] == "end"
    assert [r["run_id"] for r in records if r["record"] == "unreadable"] == [second]
    assert first in _runs(answer)
