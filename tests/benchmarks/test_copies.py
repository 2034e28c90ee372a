"""The runs that wait for a person are made by copying one: each copy can be read, and decided about."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.programs.waiting import QUICK, WAITER
from benchmarks.rounds import ROOT, SECRET, environment
from surefoot import Surefoot
from tests.places import Place

COUNT = 30


async def test_a_copy_is_a_run_that_waits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_SECRET", SECRET)
    words = [sys.executable, "-m", "benchmarks.programs.waiting", "fill", place.url, str(COUNT)]
    subprocess.run(words, cwd=ROOT, env=environment(), check=True, capture_output=True)
    async with Surefoot(place.url, [WAITER, QUICK], worker=True) as sf:
        assert await sf.store.integrity() == []
        waiting = await sf.store.actions(sf.tenant, status="waiting", limit=2 * COUNT)
        assert len({row.run_id for row in waiting}) == COUNT
        for row in waiting:
            snapshot = await sf.snapshot(row.run_id)
            assert snapshot.status == "waiting_for_user"
            assert [action.id for action in snapshot.pending_actions] == [row.action.id]
        await sf.answer(waiting[-1].action.id, "Yes.", by="ann")
        asked_again = await sf.wait(waiting[-1].run_id)
        assert asked_again.status == "waiting_for_user"
        assert asked_again.pending_actions[0].id != waiting[-1].action.id
