"""The examples with curl and with the JavaScript client in Node, as they stand, against a real server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.rig import Cli
from tests.docs.test_examples import ROOT
from tests.places import Place
from tests.server.rig import Served
from tests.support import eventually_sync

pytestmark = pytest.mark.foreign  # curl, jq and Node

EXAMPLES = ROOT / "examples"
TOKEN = "ada-" + "q7w8" * 10


@pytest.fixture(params=["without tokens", "with a token"])
def served(request: pytest.FixtureRequest, place: Place) -> Iterator[Served]:
    more = {"SUREFOOT_TOKENS": f"ada admin {TOKEN}"} if request.param == "with a token" else {}
    made = Served(Cli(place), more=more, file=str(EXAMPLES / "notes.py"))
    yield made
    made.kill()


def environment(served: Served) -> dict[str, str]:
    """What whoever runs an example has set."""
    needed = served.get("/v1/session").status == 401
    return {**os.environ, "SUREFOOT_URL": served.url, **({"SUREFOOT_TOKEN": TOKEN} if needed else {})}


def notes_of(served: Served) -> list[str]:
    file = served.folder / "notes.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_curl_starts_watches_approves_resolves_and_cancels(served: Served) -> None:
    for program in ("curl", "jq"):
        assert shutil.which(program), f"{program} is needed for examples/curl.sh"
    done = subprocess.run(
        ["bash", str(EXAMPLES / "curl.sh")], env=environment(served), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stderr == "", (done.stdout, done.stderr)
    parts = dict(re.findall(r"== (\w+)[^\n]*\n(.*?)(?=\n== |\Z)", done.stdout, re.DOTALL))
    assert list(parts) == ["start", "watch", "approve", "resolve", "cancel"], done.stdout
    first, again = re.findall(r"run_[0-9a-z]{26}", parts["start"])
    assert first == again, "the same key is the same run"
    assert parts["watch"].splitlines()[-1].endswith("action_requested")
    assert parts["approve"].count("approve by") == 2 and '"status": "completed"' in parts["approve"]
    assert '"external_resource_id": "note-7"' in parts["resolve"] and '"resolution": "happened"' in parts["resolve"]
    assert '"status": "cancelled"' in parts["cancel"] and '"may_have_been_sent": []' in parts["cancel"]
    sequences = [int(n) for n in re.findall(r"^  (\d+) \w+$", parts["watch"] + "\n" + parts["approve"], re.MULTILINE)]
    assert sequences == sorted(set(sequences)), "each event once, in order"
    assert len(notes_of(served)) == 1


def test_curl_ends_with_the_problem_that_it_is_told(served: Served) -> None:
    given = {**environment(served), "SUREFOOT_TOKEN": "wrong"}
    if served.get("/v1/session").status != 401:
        return
    done = subprocess.run(["bash", str(EXAMPLES / "curl.sh")], env=given, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "401" in done.stderr, (done.stdout, done.stderr)


@pytest.mark.parametrize(("answer", "status"), [("y", "Completed"), ("n", "Completed")])
def test_node_starts_watches_and_decides(served: Served, answer: str, status: str) -> None:
    node = shutil.which("node")
    assert node, "Node 18 or newer is needed for examples/javascript"
    words = [node, str(EXAMPLES / "javascript" / "node.mjs"), "writer", "Tell them."]
    done = subprocess.run(
        words, env=environment(served), input=f"{answer}\n", capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stderr == "", (done.stdout, done.stderr)
    assert f"{'approve' if answer == 'y' else 'reject'} by" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{status}:")
    sequences = [int(n) for n in re.findall(r"(?:^| )  (\d+) \w+$", done.stdout, re.MULTILINE)]
    assert sequences == list(range(1, len(sequences) + 1)), done.stdout
    eventually_sync(lambda: len(notes_of(served)) == (1 if answer == "y" else 0), "the note")
