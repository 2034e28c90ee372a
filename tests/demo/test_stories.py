"""The demo as a newcomer runs it: real processes, judged by its exit code and by what it found to be true."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import surefoot
from surefoot.cli.arguments import STORIES
from surefoot.demo.stories import STORIES as PLAYED
from tests.testing.processes import process

pytestmark = [pytest.mark.sqlite_only("the demo brings a SQLite file of its own"), pytest.mark.real_process]
SOURCE = Path(surefoot.__file__).parents[1]
SECONDS_MAX = 150


def _demo(
    folder: Path, *words: str, stdin: str = "", more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "surefoot", "demo", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(SOURCE), **(more or {})}, input=stdin, capture_output=True,
        text=True, timeout=SECONDS_MAX,
    )  # fmt: skip


def test_the_stories_of_the_command_line_are_those_that_are_played() -> None:
    assert tuple(PLAYED) == STORIES


@pytest.mark.parametrize(
    ("story", "comments", "attempts"),
    [("founding", 1, 1), ("absent", 1, 2), ("undetermined", 1, 1), ("rejected", 0, 0), ("paused", 1, 2)],
)
def test_a_story_is_true_to_its_end(tmp_path: Path, story: str, comments: int, attempts: int) -> None:
    done = _demo(tmp_path, "--yes", "--story", story, "--json", "--keep", "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] and told["checks"] and all(check["ok"] for check in told["checks"])
    assert (told["comments"], told["run"]["status"]) == (comments, "completed")
    step = next(s for s in told["run"]["steps"] if s["tool_name"] == "create_issue_comment")
    assert step["attempt"] == attempts
    kept = tmp_path / "kept"
    entries = [json.loads(line) for line in (kept / "world.jsonl").read_text().splitlines()]
    assert sum(e["what"] == "received" and e["method"] == "POST" for e in entries) == comments
    assert all("token-of-the-world" not in file.read_text(errors="replace") for file in kept.glob("worker-*.log"))


def test_the_founding_story_reads_as_a_story(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    order = [
        "wrote down BEFORE the call: step 4, attempt 1",
        "creates comment",
        "its reply is lost",
        "worker 1 is killed (SIGKILL)",
        "worker 2 starts",
        "outcome unknown",
        "looked: comment",
        "step 4 succeeded: comment id",
        "the run is completed",
        "Why it was not sent again",
        "Comments on GitHub: 1.",
    ]
    story = done.stdout[done.stdout.index("What happened") :]
    places = [story.index(text) for text in order]
    assert places == sorted(places)
    between = story[places[5] : places[7]].lower()
    assert "posting" not in between and "again" not in between
    assert list(tmp_path.iterdir()) == [], "without --keep nothing is left"


def test_a_person_may_say_no(tmp_path: Path) -> None:
    done = _demo(tmp_path, stdin="maybe\nn\n")
    assert done.returncode == 0 and "Comments on GitHub: 0." in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("answer", "says"), [("d", "can be read again"), ("g", "keeps its unknown outcome")])
def test_the_other_answers_about_a_call_in_doubt(tmp_path: Path, answer: str, says: str) -> None:
    done = _demo(tmp_path, "--story", "undetermined", stdin=f"y\n{answer}\n")
    assert done.returncode == 0 and says in done.stdout, done.stdout + done.stderr
    assert "Comments on GitHub: 1." in done.stdout


def test_without_a_person_it_waits_for_one_and_leaves_no_process(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--json", "--keep", "kept")
    assert done.returncode == 3 and json.loads(done.stdout)["error"]["code"] == "nobody_answers"
    assert "--yes" in json.loads(done.stdout)["error"]["message"]
    process = re.search(r"worker 1 starts \(process (\d+)\)", done.stderr)
    assert process is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(process[1]), 0)


def test_a_real_provider_may_write_the_review(tmp_path: Path) -> None:
    place = {"repo": "acme/app"}
    script: list[object] = [
        {"calls": [{"name": "read_pull_request", "arguments": {**place, "number": 128}}]},
        {
            "calls": [
                {"name": "create_issue_comment", "arguments": {**place, "issue_number": 128, "body": "By a model."}}
            ]
        },
        {"text": "Published."},
    ]
    (tmp_path / "script.json").write_text(json.dumps(script))
    words = ("--script", str(tmp_path / "script.json"))
    with process("surefoot.testing.model_server", *words, port_file=tmp_path / "port") as (_, url):
        environment = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-of-the-double-0123456789"}
        done = _demo(tmp_path, "--yes", "--json", "--model", "openai:gpt-5", more=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] and told["comments"] == 1 and told["run"]["result"] == {"text": "Published."}
    assert "sk-of-the-double" not in done.stdout + done.stderr


def test_a_model_without_a_provider_is_wrong_use(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--yes", "--model", "gpt-5")
    assert done.returncode == 2 and "openai:gpt-5" in done.stderr


def test_a_folder_with_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").touch()
    done = _demo(tmp_path, "--yes", "--keep", "mine")
    assert done.returncode == 2 and "not empty" in done.stderr
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["note"]
