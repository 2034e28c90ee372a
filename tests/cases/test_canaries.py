"""Twenty secrets by every road, and no trace of them at any exit: C055, C056."""

from __future__ import annotations

import asyncio
import base64
import json
import sys

import pytest

from surefoot.testing import faults as f
from tests.cases.canaries import CANARIES, NAMES, forms
from tests.cases.rig import Live

COMMANDS = (
    ("runs", "list"), ("runs", "show", "RUN", "--messages"), ("runs", "watch", "RUN"), ("actions", "list"),
    ("actions", "show", "ACTION"), ("doctor",), ("export",),
)  # fmt: skip


def _traces(number: int) -> set[str]:
    """Texts that give the secret away: its forms, the core of its base64, and its longer lines."""
    secret = CANARIES[number]
    traces = set(forms(secret)) | {line for line in secret.splitlines() if len(line) >= 16}
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + secret.strip().encode()).decode()
        # What alone the secret decides: without the characters at both ends that its neighbours share.
        core = coded[4 if before else 0 : -4 if len(coded) > 12 else None]
        traces |= {core, core.replace("+", "-").replace("/", "_")}
    more = {json.dumps(trace)[1:-1] for trace in traces} | {
        json.dumps(trace, ensure_ascii=False)[1:-1] for trace in traces
    }
    return {trace for trace in traces | more if len(trace) >= 6}


def _hits(exits: dict[str, bytes]) -> list[str]:
    found = []
    for number, name in enumerate(NAMES):
        for trace in (trace.encode() for trace in _traces(number)):
            for where, data in exits.items():
                place = data.find(trace)
                if place >= 0:
                    found.append(f"{name} in {where}: {data[max(place - 80, 0) : place + len(trace[:60])]!r}")
    return found


async def _said(live: Live, *words: str) -> tuple[bytes, bytes]:
    environment = {name: value for name, value in live.environment.items() if name not in NAMES}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, env=environment, cwd=live.folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    return await asyncio.wait_for(child.communicate(), 120)


async def test_c055_c056_twenty_secrets_by_every_road_leave_no_trace(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(CANARIES)) == 20
    live.broken = {"I1"}  # the receipts are made up
    for name, secret in zip(NAMES, CANARIES, strict=True):
        monkeypatch.setenv(name, secret)
    live.fault(f.StatusAfter(500, echo_authorization=True), "GET", path="/echo/**", times=None)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cases.canaries", live.url, env=live.environment, cwd=live.folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(child.communicate(), 240)
    assert child.returncode == 0, err.decode()[-1500:]
    snapshot, _, events, messages, actions, frames, _, *_ = json.loads(out)
    assert snapshot["status"] == "completed", snapshot
    assert len(events) > 400 and len(messages) > 60 and len(actions) >= 4 and len(frames) > 100
    assert {step["tool_name"] for step in snapshot["steps"] if step["tool_name"]} >= {"results", "fetch", "doubt"}
    exits = {"stdout": out, "stderr": err}
    held = live.place.held()
    assert sum(map(len, held.values())) > 100_000
    exits |= held
    for words in COMMANDS:
        named = [{"RUN": snapshot["id"], "ACTION": actions[0]["action"]["id"]}.get(word, word) for word in words]
        for more in ([], ["--json"]):
            told = await _said(live, "surefoot", *named, *more)
            assert len(told[0]) > 20, told
            exits[" ".join([*words, *more])] = b"\n".join(told)
    found = _hits(exits)
    assert not found, "\n".join(found[:40])
