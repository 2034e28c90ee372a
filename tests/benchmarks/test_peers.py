"""A peer that cannot be installed is told of, in the report and among the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import kills, machine, peers, postgres


def test_a_server_that_cannot_be_started_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTS_POSTGRES_BIN", "/nowhere/at/all/bin")
    missing: dict[str, str] = {}
    told: list[str] = []
    with postgres.databases(told.append, missing) as found:
        assert found is None
    assert "could not be started" in missing["postgres"]
    assert any(line.startswith("PostgreSQL is MISSING") for line in told)
    section = kills.section(kills.Kills(machine.conditions(), [], missing))
    assert "**PostgreSQL is missing**: its server could not be started" in section


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
