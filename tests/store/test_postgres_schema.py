"""The schema that a PostgreSQL store lies in: any name."""

from __future__ import annotations

from urllib.parse import quote

import asyncpg
import pytest

from surefoot.doors import SystemClock
from surefoot.store.postgres import PostgresStore
from tests.places import Place
from tests.store.build import TENANT, Story

pytestmark = pytest.mark.postgres_only("schemas")


@pytest.mark.parametrize("schema", ["agents", "Agents", "tenant-a", "of us", 'a"b', "select"])
async def test_a_schema_may_have_any_name(place: Place, schema: str) -> None:
    quoted = '"' + schema.replace('"', '""') + '"'
    beside = await asyncpg.connect(place.url)
    await beside.execute(f"CREATE SCHEMA {quoted}")
    url = f"{place.url}&search_path={quote(quoted)}"
    store = PostgresStore(url, SystemClock())
    await store.open()
    story = await Story.begin(store)
    await story.append(story.created())
    await store.close()
    again = PostgresStore(url, SystemClock())
    await again.open()
    assert await again.load(TENANT, story.run.id) == story.run and await again.integrity() == []
    await again.close()
    assert await beside.fetchval(f"SELECT count(*) FROM {quoted}.run") == 1
    assert await beside.fetchval("SELECT count(*) FROM public.run") == 0
    await beside.close()
