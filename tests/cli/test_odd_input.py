"""Odd words, a full stdout, a file that is no store, settings that nobody reads: a clear error, never a bug of ours."""

from __future__ import annotations

import subprocess
import sys
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
    assert ("is not UTF-8" in plain.err) == (HALF in words)


@pytest.mark.real_process
@pytest.mark.skipif(sys.platform != "linux", reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("runs", "list", "--json"), ("runs", "list"), ("--version",), ("doctor", "--json")])
def test_a_full_stdout_is_a_clear_error(cli: Cli, words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "surefoot", *words], cwd=cli.folder, env=cli.environment, stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 4
    assert "the output cannot be written (No space left on device)" in done.stderr and "Traceback" not in done.stderr


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
