"""surefoot doctor, prune, db upgrade."""

from __future__ import annotations

import pytest

from surefoot.store.migrate import migrations
from tests.cli.rig import Answer, Cli


def _edit(cli: Cli, statement: str, *values: object) -> None:
    assert cli.place.execute(statement, *values) != 0, "nothing was changed"


def _codes(answer: Answer) -> set[object]:
    findings = answer.record()["findings"]
    assert isinstance(findings, list)
    return {finding["code"] for finding in findings}


def test_a_lease_that_nobody_took_over_is_stuck_too(cli: Cli) -> None:
    cli.start("talker")
    over = "lease_owner = 'gone#0', lease_until = 1.0"
    _edit(cli, f"UPDATE run SET {over}")
    assert cli.json("doctor").code == 0, "a worker may still come"
    _edit(cli, "UPDATE run SET updated_at = updated_at - 86400")
    assert _codes(cli.json("doctor")) == {"stuck"}


def test_questions_and_live_runs_are_information(cli: Cli) -> None:
    live = cli.start("talker")
    run_id, action_id = cli.asked("shouter")
    answer = cli.json("doctor")
    report = answer.record()
    assert answer.code == 0 and report["findings"] == []
    information = report["information"]
    assert isinstance(information, dict)
    assert information["runs"] == {"running": 1, "waiting_for_user": 1}
    assert information["questions"] == [action_id] and information["in_doubt"] == [run_id]
    assert set(information["live"]) == {live, run_id}
    assert "nothing is wrong" in cli.run("doctor").out


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE run SET status = 'completed'", "differs"),
        ("UPDATE step SET input_hash = 'x' WHERE tool_name = 'post_note'", "differs"),
        ("UPDATE step SET status = 'failed' WHERE tool_name = 'post_note'", "differs"),
        ("UPDATE step SET attempts = replace(attempts, 'applied', 'in_doubt')", "differs"),
        ("DELETE FROM event WHERE version = 2", "differs"),
        ("UPDATE event SET data = '[{' WHERE version = 2", "unreadable"),
        ("UPDATE run SET blocked_code = 'unknown_tool'", "blocked"),
        ("UPDATE run SET ready_at = 0.0, updated_at = updated_at - 86400", "stuck"),
        ("UPDATE step SET safe_input = NULL WHERE tool_name = 'post_note'", "unreadable"),
    ],
)
def test_findings(cli: Cli, statement: str, code: str) -> None:
    run_id, _ = cli.asked("writer")
    _edit(cli, statement)
    answer = cli.json("doctor")
    assert answer.code == 1 and code in _codes(answer)
    findings = answer.record()["findings"]
    assert isinstance(findings, list) and all(
        f["run_id"] in (run_id, None) and f["text"] and f["next"] for f in findings
    )
    assert cli.run("doctor").code == 1 and f"{code}  {run_id}" in cli.run("doctor").out


def test_a_completed_run_without_its_result(cli: Cli) -> None:
    run_id = str(cli.json("runs", "start", "agents.py:talker", "Hi", "--wait").record()["id"])
    assert cli.json("doctor").code == 0
    _edit(cli, "UPDATE run SET result = NULL WHERE id = ?", run_id)
    assert "no_result" in _codes(cli.json("doctor"))


def test_one_unreadable_run_does_not_hide_the_others(cli: Cli) -> None:
    first, second = cli.start("talker"), cli.start("talker")
    _edit(cli, "UPDATE event SET data = '{' WHERE run_id = ?", first)
    answer = cli.json("doctor")
    assert _codes(answer) == {"unreadable"}
    assert answer.record()["information"]["live"] == [second]  # type: ignore[index]  # JSON
    cli.work("talker")
    assert cli.status(second) == "completed"


@pytest.mark.sqlite_only("the pages of a file")
def test_a_damaged_file_is_found_or_refused(cli: Cli) -> None:
    for _ in range(3):
        cli.start("talker", "x" * 20_000)
    file = cli.folder / "surefoot.db"
    data = bytearray(file.read_bytes())
    for page in range(4, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    file.write_bytes(bytes(data))
    answer = cli.json("doctor")
    assert answer.code in (1, 5), answer
    assert answer.error == "unreadable" if answer.code == 5 else "damaged" in _codes(answer)


def test_prune_removes_what_ended_long_ago_and_nothing_else(cli: Cli) -> None:
    ended = str(cli.json("runs", "start", "agents.py:talker", "Hi", "--wait").record()["id"])
    open_run, _ = cli.asked("shouter")
    assert cli.json("prune").record()["removed"]["runs"] == 0  # type: ignore[index]  # JSON
    removed = cli.json("prune", "--keep-days", "0.0000001", "--keep-requests-days", "0.0000001").record()["removed"]
    assert isinstance(removed, dict) and removed["runs"] == 1
    assert [run["id"] for run in cli.json("runs", "list").records()] == [open_run] != [ended]
    assert cli.json("doctor").code == 0


def test_db_upgrade_makes_a_store_and_refuses_a_newer_one(cli: Cli) -> None:
    made = cli.json("db", "upgrade").record()
    assert made["schema"] == len(migrations(cli.place.kind))
    if cli.place.kind == "sqlite":
        assert made["store"] == str(cli.place.path.resolve())
    assert cli.run("db", "upgrade").code == 0
    _edit(cli, "INSERT INTO schema_migration (version, name, checksum, created_at) VALUES (99, 'later', 'x', 0)")
    for words in (("db", "upgrade"), ("runs", "list"), ("actions", "list"), ("doctor",)):
        answer = cli.json(*words)
        assert (answer.code, answer.error) == (5, "store_unsupported"), words
    assert "newer" in cli.run("runs", "list").err
