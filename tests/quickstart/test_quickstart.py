"""The quickstart's own commands in one shell, from an empty folder: approval, kill -9, restart, one effect."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "quickstart.md", ROOT / "docs" / "quickstart.zh-CN.md")
BLOCK = re.compile(
    r"^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SECONDS_MAX = 300.0
MARK = "== end of block"


def _blocks(page: Path) -> list[tuple[str, str | None, str]]:
    """Every block: its kind, the file that it is to be saved as, its text."""
    return [(m["kind"], m["file"], m["text"]) for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def test_both_languages_have_the_same_files_and_commands() -> None:
    english, chinese = map(_blocks, PAGES)
    assert english == chinese
    assert {kind for kind, _, _ in english} == {"sh", "python", "text"}
    assert "kill -9 $WORKER" in "".join(text for kind, _, text in english if kind == "sh")
    headings = [re.findall(r"^#+ ", page.read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES]
    assert headings[0] == headings[1]


def _environment(home: Path) -> dict[str, str]:
    """A new user's: nothing of ours but where packages come from, in the versions of the lock."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LC_", "TMP"))}
    folders = [str(Path(sys.executable).resolve().parent), "/usr/local/bin", "/usr/bin", "/bin"]
    lock = home / "constraints.txt"
    lock.write_text(f"{_lines('lock.txt')}\n{_lines('lock-dev.txt')}", encoding="utf-8")
    own = {
        "PATH": ":".join(folders),
        "HOME": str(home),
        "PIP_CONSTRAINT": str(lock),
        "PIP_QUIET": "1",
        "LANG": "C.UTF-8",
    }
    return {**kept, **own, "SUREFOOT_LANG": "en"}


def _lines(name: str) -> str:
    """The pinned packages of a lock file."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if "==" in line and not line.startswith("-"))


@pytest.mark.sqlite_only("a new user's store is a file in an empty folder")
@pytest.mark.real_process
def test_the_quickstart_from_an_empty_folder_to_one_invoice(tmp_path: Path) -> None:
    (tmp_path / "surefoot").symlink_to(ROOT)
    folder = tmp_path / "quickstart"
    script: list[str] = []
    for number, (kind, file, text) in enumerate(_blocks(PAGES[0])):
        if file is not None:
            kept = tmp_path / file
            kept.write_text(text, encoding="utf-8")
            script.append(f"cp {kept} {folder / file}\n")
        elif kind == "sh":
            script.append(f"{text}echo '{MARK} {number}'\n")
    errors = tmp_path / "stderr"
    with errors.open("wb") as stderr:
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=tmp_path, env=_environment(tmp_path), start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
        try:
            out, _ = shell.communicate("".join(script), timeout=SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    parts = re.split(rf"{MARK} \d+\n", out)
    said = "\n".join(parts) + errors.read_text()
    installed, _, watched, shown, killed, watched_again, effect, stopped, *_ = parts
    assert "error" not in installed.lower(), said
    assert "Waiting for your confirmation" in watched, said
    assert "cents: 900" in shown and "customer: Ann" in shown, said
    assert re.search(r"send_invoice\s+running", killed) and "inv_1" not in killed, said
    # bash pads the process's id to five places.
    assert re.search(r"bash: line \d+: +\d+ Killed +surefoot worker", said), "the worker was killed"
    assert "posting again" not in said.lower() and "looked at the target: found inv_1" in watched_again, said
    assert "inv_1" in watched_again and "The invoice is sent." in watched_again, said
    listed, requests = effect.split("]\n", 1)
    assert [invoice["id"] for invoice in json.loads(f"{listed}]")] == ["inv_1"], said
    assert requests.startswith("1\n"), said
    assert "nothing is wrong" in effect, said
    assert stopped.strip() == "", said
