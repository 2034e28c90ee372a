"""Budgets: what a run may come to is checked before each model call, and its sums are what its events say."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from surefoot import Agent, Operation, Surefoot, effects, tool
from surefoot.agent.model import CallPart, ModelResponse, Usage
from surefoot.core.audit import check_run
from surefoot.core.state import Run
from surefoot.doors import SystemClock
from surefoot.store.migrate import migrations
from surefoot.store.sqlite.store import SqliteStore
from surefoot.testing.model import FakeModel

WAIT_SECONDS = 30.0
ATTEMPTS = """INSERT INTO main.attempt (
    tenant_id, step_id, number, token, account, key_id, started_at, started_wall, first_byte_before, last_byte_before,
    ended_at, ended_as, code, absent, created_at, updated_at
) SELECT
    tenant_id, step.id, json_extract(value, '$.number'), json_extract(value, '$.token'),
    json_extract(value, '$.account'), json_extract(value, '$.key_id'), json_extract(value, '$.started.mono'),
    json_extract(value, '$.started.wall'), json_extract(value, '$.first_byte_before'),
    json_extract(value, '$.last_byte_before'), json_extract(value, '$.ended'), json_extract(value, '$.end'),
    json_extract(value, '$.code'), coalesce(json_extract(value, '$.absent'), 0), created_at, updated_at
FROM new.step, json_each(attempts)"""
"""As they stood in the first schema, in a table of their own."""


@tool(effect=effects.read)
def look(op: Operation) -> str:
    """Look."""
    return "seen"


def _turn(number: int, usage: Usage) -> ModelResponse:
    return ModelResponse("", (CallPart(f"c{number}", "look", "{}"),), usage)


def _agent(usage: Usage, **budgets: float) -> tuple[Agent, FakeModel]:
    model = FakeModel([*(_turn(n, usage) for n in range(9)), ModelResponse("done", (), usage)])
    return Agent("reader", model, "Read.", [look], **budgets), model  # type: ignore[arg-type]  # whole numbers where they belong


async def _row(sf: Surefoot, run_id: str) -> Run:
    """The run's row, which is what its events make."""
    row = (await sf.store.run("default", run_id)).run
    steps = [line.step for line in await sf.store.steps("default", run_id)]
    assert check_run(row, steps, [], await sf.store.events("default", run_id, 0, 1000)) == []
    return row


@pytest.mark.parametrize(
    ("budgets", "usage", "code", "calls"),
    [
        ({"tokens": 100}, Usage(30, 10), "tokens_used_up", 3),
        ({"tokens": 80}, Usage(30, 10), "tokens_used_up", 2),
        ({"tokens": 400}, Usage(30, 10), None, 10),
        ({"dollars": 0.01}, Usage(1, 1, 4_000), "cost_used_up", 3),
        ({"dollars": 0.01}, Usage(1_000, 1_000), None, 10),  # no price is known: nothing is counted
        ({"turns": 4}, Usage(30, 10), "turns_used_up", 4),
    ],
)
async def test_a_run_ends_before_the_call_that_its_budget_does_not_allow(
    store_url: str, budgets: Mapping[str, float], usage: Usage, code: str | None, calls: int
) -> None:
    agent, model = _agent(usage, **budgets)
    async with Surefoot(store_url, [agent], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "go")).id, timeout=WAIT_SECONDS)
        assert (run.error_code, len(model.requests)) == (code, calls)
        row = await _row(sf, run.id)
    tokens = (row.input_tokens, row.output_tokens)
    assert tokens == (calls * usage.input_tokens, calls * usage.output_tokens)
    assert row.cost_microdollars == calls * (usage.cost_microdollars or 0)


async def test_the_sums_survive_a_restart(store_url: str) -> None:
    url = store_url
    agent, _ = _agent(Usage(30, 10), tokens=200)
    async with Surefoot(url, [agent], worker=True) as sf:
        run = await sf.start("reader", "go")
        await sf.wait(run.id, until=lambda s: len(s.steps) > 2, timeout=WAIT_SECONDS)
    agent, _ = _agent(Usage(30, 10), tokens=200)
    async with Surefoot(url, [agent], worker=True) as sf:
        ended = await sf.wait(run.id, timeout=WAIT_SECONDS)
        assert ended.error_code == "tokens_used_up"
        assert (await _row(sf, run.id)).turns == 5


@pytest.mark.sqlite_only("PostgreSQL had no store before there were sums")
async def test_a_store_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    """Rows that were written before there were sums read as zero."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    agent, _ = _agent(Usage(30, 10), turns=1)
    async with Surefoot(f"sqlite:///{new}", [agent], worker=True) as sf:
        run = await sf.wait((await sf.start("reader", "go")).id, timeout=WAIT_SECONDS)
        steps = await sf.store.steps("default", run.id)
    first = SqliteStore(str(old), SystemClock(), known=migrations("sqlite")[:2])
    await first.open()
    await first.close()
    with contextlib.closing(sqlite3.connect(old)) as file, file:
        file.execute("ATTACH ? AS new", (str(new),))
        file.execute("UPDATE new.step SET operation_key = run_id || ':' || id WHERE operation_key IS NULL")
        file.execute(ATTEMPTS)
        for (table,) in file.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall():
            if table not in ("schema_migration", "attempt") and not table.startswith("sqlite_"):
                columns = ", ".join(row[1] for row in file.execute(f"PRAGMA main.table_info({table})"))
                file.execute(f"INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    async with Surefoot(f"sqlite:///{old}") as sf:
        assert await sf.store.steps("default", run.id) == steps and steps[0].step.attempts
        row = (await sf.store.run("default", run.id)).run
        assert (row.input_tokens, row.result_step_id, row.error_code) == (0, None, "turns_used_up")
