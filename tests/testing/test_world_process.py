"""The World as a process of its own: its log outlives it."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from surefoot.testing.wire import Applied, Received, Replied, read_log
from tests.testing.processes import process

DEADLINE_SECONDS = 20.0
COMMENTS = "/repos/acme/app/issues/128/comments"


@pytest.mark.real_process
def test_the_log_outlives_a_killed_world(tmp_path: Path) -> None:
    log, port_file = tmp_path / "world.jsonl", tmp_path / "port"
    fault = '{"fault": {"kind": "lost_reply", "how": "fin"}, "method": "POST"}'
    described = ["--repo", "acme/app", "--pull", "128", "--comments", "2", "--token", "t=surefoot-bot"]
    with process(
        "surefoot.testing.world_server", *described, "--faults", fault, "--log", str(log), port_file=port_file
    ) as (child, url):
        headers = {"authorization": "Bearer t"}
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{url}{COMMENTS}", json={"body": "once"}, headers=headers, trust_env=False)
        assert httpx.get(f"{url}{COMMENTS}", headers=headers, trust_env=False).json()[-1]["body"] == "once"
        child.send_signal(signal.SIGKILL)
        child.wait()
    entries = read_log(log)
    assert [entry.order for entry in entries] == list(range(1, len(entries) + 1))
    asked = [entry for entry in entries if isinstance(entry, Received)]
    assert [entry.method for entry in asked] == ["POST", "GET"]
    assert [entry.text for entry in entries if isinstance(entry, Applied) and entry.request] == ["once"]
    assert [entry.end for entry in entries if isinstance(entry, Replied)] == ["fin", "reply"]


@pytest.mark.real_process
def test_the_world_stops_when_told(tmp_path: Path) -> None:
    with process("surefoot.testing.world_server", "--issue", "1", port_file=tmp_path / "port") as (child, url):
        assert httpx.get(f"{url}/_world/state", trust_env=False).json()["repos"]["acme/app"]["1"]["comments"] == []
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE_SECONDS) == 0
