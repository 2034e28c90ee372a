"""`surefoot serve` as a process: a whole story, and a stop that ends streams and lets the worker finish."""

from __future__ import annotations

from pathlib import Path

from tests.cli.rig import Cli
from tests.server.rig import serving


def test_a_story_is_started_watched_approved_and_read_again_by_the_command_line(tmp_path: Path) -> None:
    with serving(tmp_path) as web:
        made = web.start("writer", key='"first"')
        assert made.status == 201
        run_id = str(made.record()["id"])
        assert made.headers["location"] == f"/v1/runs/{run_id}"
        again = web.start("writer", key="first")
        assert (again.status, again.record()["id"]) == (200, run_id)
        assert web.decide(web.question(run_id), "approve").status == 200
        web.until(run_id, "completed")
        snapshot = web.get(f"/v1/runs/{run_id}").record()
        page = web.get(f"/v1/runs/{run_id}/events").record()
    assert snapshot == Cli(tmp_path).json("runs", "show", run_id).record()
    assert page["ended"] is True and page["next_after"] == snapshot["last_event_sequence"]
    assert len(Cli(tmp_path).sent) == 1


def test_other_machines_are_not_served_without_tokens(tmp_path: Path) -> None:
    refused = Cli(tmp_path).process("serve", "agents.py", "--host", "0.0.0.0", "--port", "0", "--json")
    assert (refused.code, refused.error) == (2, "tokens_needed")
