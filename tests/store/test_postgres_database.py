"""The database that a PostgreSQL store lies in: a schema of any name, any language, and tables that are gone."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest

from surefoot.doors import SystemClock
from surefoot.errors import StoreUnavailable
from surefoot.store.postgres import PostgresStore, failures
from surefoot.store.sqlfile import FOLDER
from tests.places import Place
from tests.store.build import TENANT, Story

pytestmark = pytest.mark.postgres_only("schemas")

POSTGRES_QUERIES = Path(FOLDER, "postgres", "queries.sql")


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


def test_letters_are_folded_alike_whatever_the_language_of_the_database() -> None:
    """In Turkish the small letter of I is another one: a webhook about acme/issues was not about Acme/Issues then."""
    folds = re.findall(r"\b(?:lower|upper|initcap|casefold)\(([^)]*)\)", POSTGRES_QUERIES.read_text())
    assert folds, "there is one, for the names of targets"
    assert [words for words in folds if not words.endswith('COLLATE "C"')] == []


async def test_tables_that_are_gone_are_told_with_what_to_do(place: Place) -> None:
    """A database that was dropped and created anew under the same name, while a process has it open."""
    store = PostgresStore(place.url, SystemClock())
    await store.open()
    story = await Story.begin(store)
    beside = await asyncpg.connect(place.url)
    await beside.execute("ALTER SCHEMA public RENAME TO aside")
    await beside.execute("CREATE SCHEMA public")
    told = r"surefoot's tables are not there .* Put them back, or stop every process and start it again"
    with pytest.raises(StoreUnavailable, match=told):
        await story.append(story.created())
    with pytest.raises(StoreUnavailable, match=told):
        await store.claim(TENANT, "w", {}, 30.0, 1)
    with pytest.raises(StoreUnavailable, match=told):
        await store.load(TENANT, story.run.id)
    await beside.execute("DROP SCHEMA public")
    await beside.execute("ALTER SCHEMA aside RENAME TO public")
    await story.append(story.created())
    assert await story.reloaded() and await store.integrity() == []
    await beside.close()
    await store.close()


async def test_what_the_server_says_is_one_line_without_the_values_that_it_refused(place: Place) -> None:
    """A line of the log is one line, and holds no argument of a call: a refused row shows what stands in it."""
    beside = await asyncpg.connect(place.url)
    await beside.execute("CREATE TABLE beside (content text, kept text NOT NULL UNIQUE)")
    await beside.execute("INSERT INTO beside VALUES ('first', 'private')")
    for values in ("'private', NULL", "'second', 'private'"):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await beside.execute(f"INSERT INTO beside VALUES ({values})")
        assert "private" in str(refused.value)
        said = failures.one_line(refused.value)
        assert "private" not in said and "\n" not in said and "beside" in said
    with pytest.raises(asyncpg.PostgresError) as unknown:
        await beside.execute("SELECT lower(1, 2)")
    said = failures.one_line(unknown.value)
    assert "\n" not in said and "does not exist" in said and "You might need to add explicit type casts" in said
    await beside.close()
