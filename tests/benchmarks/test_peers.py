"""A peer that cannot be installed is told of, in the report and among the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import kills, machine, peers


def test_a_peer_that_cannot_be_installed_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peers-dbos.txt").write_text("dbos==3.4.0\n./nowhere\n", encoding="utf-8")
    monkeypatch.setattr(peers, "HERE", tmp_path)
    monkeypatch.setattr(peers, "BUILD", tmp_path)
    monkeypatch.setattr(peers, "PEERS", {"dbos": "DBOS"})
    told: list[str] = []
    found = peers.ready_peers(told.append)
    assert found.programs() == []
    assert "nowhere" in found.missing["dbos"]
    assert any(line.startswith("DBOS is MISSING") for line in told)
    section = kills.section(kills.Kills(machine.conditions(), [], found.missing))
    assert "**DBOS is missing**: it could not be installed" in section
