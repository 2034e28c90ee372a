"""Where a PostgreSQL store is: what a URL may say, which of several servers is found, and what a wrong one is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from surefoot.core.redact import Redactor
from surefoot.doors import SystemClock
from surefoot.errors import InvalidInput, StoreUnavailable
from surefoot.http import system_doors
from surefoot.store.open import open_store
from surefoot.store.postgres import PostgresStore
from surefoot.store.postgres.address import read_address
from tests.places import Place


@pytest.fixture
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The folder of a server that is frozen, or behind a network that is gone: it never answers."""
    folder = tmp_path_factory.mktemp("s")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / ".s.PGSQL.5432"))
    listening.listen(64)
    yield str(folder)
    listening.close()


def beside(place: Place, folders: str) -> str:
    """The place's store with further servers in front; the folder of its own stands behind."""
    parts = urlsplit(place.url)
    own = dict(parse_qsl(parts.query))["host"]
    return f"{parts.scheme}://{parts.netloc}{parts.path}?host={folders},{own}"


@pytest.mark.postgres_only("servers")
async def test_a_server_that_never_answers_does_not_hide_the_next_one(place: Place, silent: str) -> None:
    store = PostgresStore(beside(place, silent), SystemClock())
    await store.open()
    await store.check_writable()
    await store.close()


@pytest.mark.postgres_only("servers")
async def test_the_server_that_answered_last_is_asked_first(place: Place, silent: str, tmp_path: Path) -> None:
    store = PostgresStore(beside(place, f"{silent},{tmp_path}"), SystemClock())
    await store.open()
    links = store._links
    opened: list[str] = []
    for _ in range(3):
        link = await links.open()
        opened.append(links._address.servers[links._found][0])
        await link.close()
    own = dict(parse_qsl(urlsplit(place.url).query))["host"]
    assert opened == [own] * 3
    await store.close()


@pytest.mark.postgres_only("servers")
async def test_options_of_libpq_that_change_no_promise_are_taken(place: Place) -> None:
    more = "connect_timeout=5&keepalives=1&keepalives_idle=30&gssencmode=disable&channel_binding=prefer&sslsni=1"
    store = PostgresStore(f"{place.url}&{more}&application_name=mine&target_session_attrs=read-write", SystemClock())
    await store.open()
    await store.close()


@pytest.mark.postgres_only("servers")
@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("foo=bar", "neither an option that surefoot knows nor a setting of the server"),
        ("options=-cfoo", "neither an option that surefoot knows nor a setting of the server"),
        ("ssl=on", "neither an option"),
    ],
)
async def test_an_option_that_nobody_knows_is_named(place: Place, option: str, told: str) -> None:
    with pytest.raises(StoreUnavailable, match=told):
        await PostgresStore(f"{place.url}&{option}", SystemClock()).open()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://u@h:abc/x", "the port"),
        ("postgresql://u@h:99999999/x", "the port"),
        ("postgresql://u:pass/word@h/x", "%2F"),
        ("postgresql://u@h/x?sslmode=banana", "sslmode is one of disable, allow, prefer, require"),
        ("postgresql://u@h/x?channel_binding=require", "channel_binding=require"),
        ("postgresql://u@h/x?gssencmode=require", "gssencmode=require"),
        ("postgresql://u@h/x?connect_timeout=soon", "connect_timeout"),
        ("postgresql://u@h1,h2/x?target_session_attrs=standby", "target_session_attrs"),
        ("postgresql://u@h1,h2/x?port=1,2,3", "the ports"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_name(url: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        read_address(url)
    assert "pass" not in str(refused.value).replace("password", ""), "a part of the password is told"


async def test_a_scheme_with_a_slip_is_told_and_the_advice_can_be_read() -> None:
    with pytest.raises(InvalidInput) as refused:
        await open_store("postgressql://u:sesame@h:5/x", system_doors())
    shown = Redactor().patterns(str(refused.value))[0]
    assert "postgressql:" in shown and "postgresql://user@host/database" in shown
    assert "sesame" not in str(refused.value) and "redacted" not in shown


def test_servers_are_read_from_every_place_that_names_them() -> None:
    assert read_address("postgresql://u:p@a:1,b/x?port=3,4").servers == (("a", 1), ("b", 4))
    assert read_address("postgresql://u@/x?host=%2Frun%2Fa,b&port=5").servers == (("/run/a", 5), ("b", 5))
    assert read_address("postgresql://u@%2Frun%2Fpg:7/x").servers == (("/run/pg", 7),)
    assert read_address("postgresql://u@[::1]:7,[fe80::1]/x").servers == (("::1", 7), ("fe80::1", 5432))
    assert read_address("postgresql:///x").servers == ()
