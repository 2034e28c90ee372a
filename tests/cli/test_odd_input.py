"""Odd words, a full stdout, a file that is no store, settings that nobody reads: a clear error, never a bug of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.cli.rig import Cli

HALF = "act_\udcff"
HUGE = "9" * 20


@pytest.mark.parametrize(
    "words",
    [
        ("actions", "show", HALF),
        ("actions", "approve", HALF),
        ("actions", "list", "--run", HALF),
        ("runs", "show", HALF),
        ("runs", "cancel", HALF),
        ("runs", "list", "--before", HALF),
        ("runs", "list", "--agent", HALF),
        ("runs", "list", "--tenant", HALF),
        ("runs", "list", "--limit", HUGE),
        ("runs", "watch", "run_x", "--after", HUGE),
    ],
)
def test_words_that_cannot_be_meant_are_wrong_use(cli: Cli, words: tuple[str, ...]) -> None:
    answer = cli.json(*words)
    assert (answer.code, answer.error) == (2, "wrong_use")
    plain = cli.run(*words)
    assert plain.code == 2 and "Traceback" not in plain.err
    assert (r"act_\xff is not UTF-8" in plain.err) == (HALF in words)


@pytest.mark.real_process
def test_words_in_utf_8_are_taken_where_the_locale_is_another(cli: Cli) -> None:
    """Python reads them as bytes there, which are UTF-8 all the same: "give it as UTF-8" was no help."""
    ascii_only = {**cli.environment, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    start = [sys.executable, "-m", "surefoot", "runs", "start", "agents.py:talker", "Zahle \u652f\u4ed8.", "--json"]
    done = subprocess.run(
        [word.encode() for word in start], cwd=cli.folder, env=ascii_only, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["id"]
    assert "text: Zahle \u652f\u4ed8." in cli.run("runs", "show", run, "--messages").out


def test_what_is_not_found_says_where_it_was_looked_for(cli: Cli) -> None:
    """A store is made where there is none: in another folder the right id is in none, and nothing said so."""
    place = f"{cli.folder}/surefoot.db" if cli.place.kind == "sqlite" else "the database"
    for words in (("runs", "show", "run_none"), ("actions", "approve", "act_none"), ("runs", "cancel", "run_none")):
        told = cli.run(*words)
        assert told.code == 5
        assert f"in {place}, tenant default: check the id, --store and --tenant" in told.err


@pytest.mark.real_process
@pytest.mark.skipif(sys.platform != "linux", reason="needs a device that is always full")
@pytest.mark.parametrize(
    "words",
    [
        ("runs", "list", "--json"),
        ("runs", "list"),
        ("--version",),
        ("--help",),
        ("runs", "--help"),
        ("doctor", "--json"),
    ],
)
def test_a_full_stdout_is_a_clear_error(cli: Cli, words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "surefoot", *words], cwd=cli.folder, env=cli.environment, stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 4
    assert "the output cannot be written (No space left on device)" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.real_process
@pytest.mark.parametrize(
    ("closed", "words", "code"),
    [
        (1, ("runs", "list", "--json"), 4),
        (1, ("runs", "list"), 4),
        (1, ("runs", "show", "run_none"), 5),
        (1, ("worker", "agents.py", "--until-idle"), 0),
        (2, ("runs", "show", "run_none", "--json"), 5),
        (0, ("demo",), 3),
        (0, ("runs", "list"), 0),
    ],
)
def test_a_stream_that_the_caller_closed_is_no_bug_of_ours(
    cli: Cli, closed: int, words: tuple[str, ...], code: int
) -> None:
    """As a supervisor or a daemon leaves a process: stdin, stdout or stderr is not open at all."""
    cli.start("talker")
    done = subprocess.run(
        cli.command(*words), cwd=cli.folder, env=cli.environment, capture_output=True, text=True, timeout=60,
        preexec_fn=partial(os.close, closed),
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 4:
        assert "the output cannot be written (Bad file descriptor)" in done.stderr
    if "--json" in words and closed != 1:
        assert json.loads(done.stdout)["error"]["code"] == "not_found"


@pytest.mark.real_process
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_the_characters_shows_them_as_escapes(cli: Cli, encoding: str) -> None:
    run_id = cli.start("talker", "Tell 安娜 🎉 it is free.")
    environment = {**cli.environment, "PYTHONIOENCODING": encoding, "SUREFOOT_LANG": "zh-CN"}

    def output(*words: str) -> str:
        done = subprocess.run(cli.command(*words), cwd=cli.folder, env=environment, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(encoding)

    assert "\\u8fdb\\u884c\\u4e2d" in output("runs", "list"), "what is under way, in Chinese"
    assert "Tell \\u5b89\\u5a1c \\U0001f389 it" in output("runs", "show", run_id, "--messages")
    shown = json.loads(output("runs", "show", run_id, "--messages", "--json"))
    assert shown["messages"][0]["body"]["text"] == "Tell 安娜 🎉 it is free."
    lines = [json.loads(line) for line in output("export", run_id).splitlines()]
    said = next(line["value"] for line in lines if line["record"] == "message")
    assert said["body"]["text"] == "Tell 安娜 🎉 it is free."


@pytest.mark.sqlite_only("the store is a file")
@pytest.mark.parametrize("content", [b"\x00\x01garbage" * 500, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_the_doctor_finds_a_file_that_is_no_store_damaged(cli: Cli, content: bytes) -> None:
    path = Path(cli.folder) / "surefoot.db"
    path.write_bytes(content)
    answer = cli.json("doctor")
    assert answer.code == 1
    findings = answer.record()["findings"]
    assert isinstance(findings, list) and len(findings) == 1
    finding = findings[0]
    assert finding["code"] == "damaged" and "backup" in finding["next"]
    assert path.read_bytes() == content, "the doctor changes nothing"
    plain = cli.run("doctor")
    assert plain.code == 1 and "damaged" in plain.out
    assert cli.json("runs", "list").code in (4, 5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[tool.surefoot]\nstor = "x"\n', "stor"),
        ('[tool]\nsurefoot = "sqlite:///x.db"\n', "[tool.surefoot]"),
        ("[[tool.surefoot]]\n", "[tool.surefoot]"),
        ('[surefoot]\nstore = "sqlite:///x.db"\n', "[tool.surefoot]"),
        ('[tool.Surefoot]\nstore = "sqlite:///x.db"\n', "[tool.Surefoot]"),
        ('[tool.surefoot]\ntenant = ["x"]\n', "tenant"),
        ("[tool.surefoot]\nlease_seconds = true\n", "lease_seconds"),
        ("[tool.surefoot]\ntokens = 5\n", "tokens"),
    ],
)
def test_a_setting_that_nobody_would_read_is_named(cli: Cli, text: str, says: str) -> None:
    (Path(cli.folder) / "pyproject.toml").write_text(text)
    answer = cli.json("runs", "list")
    assert (answer.code, answer.error) == (2, "bad_setting")
    assert says in cli.run("runs", "list").err
