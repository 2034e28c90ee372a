"""PostgreSQL between two states: a connection breaks, a wait is cut short, a server is not to be used."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from surefoot import Agent, Surefoot
from surefoot.core.decide import cancel_run
from surefoot.core.state import RunStatus
from surefoot.doors import SystemClock
from surefoot.errors import CommitUnknown, InvalidInput, StoreUnavailable, StoreUnsupported
from surefoot.runtime.handle import Handle
from surefoot.store.port import Claimed
from surefoot.store.postgres import PostgresStore, link, links
from surefoot.store.postgres.address import read_address
from surefoot.testing.model import FakeModel
from tests.places import SECRET, Place
from tests.postgres import Server
from tests.store.build import TENANT, Story
from tests.store.wire import Wire
from tests.support import eventually

pytestmark = pytest.mark.postgres_only("the server's own faults")

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = $1 AND datname = current_database()"
BACKENDS = "SELECT {}(pid) FROM pg_stat_activity WHERE wait_event_type = $1 AND datname = current_database()"


@pytest.fixture
async def wire(place: Place) -> AsyncIterator[Wire]:
    async with Wire(place.url) as made:
        yield made


@pytest.fixture
async def store(wire: Wire) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(wire.url, SystemClock())
    await made.open()
    yield made
    await made.close()


async def locked(connection: asyncpg.Connection[asyncpg.Record], run_id: str) -> asyncpg.transaction.Transaction:
    """Somebody holds the run's row."""
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT FROM run WHERE id = $1 FOR UPDATE", run_id)
    return transaction


async def cut_off(wire: Wire, store: PostgresStore) -> None:
    """Every connection of the store is gone, and it knows."""
    wire.cut()
    await eventually(lambda: all(link.closed for link in store._links._all), "the store hears of it")


async def waits(connection: asyncpg.Connection[asyncpg.Record], what: str) -> None:
    """Until a statement of the store waits for a lock, or for a standby."""

    async with asyncio.timeout(20):
        while not await connection.fetchval(WAITING, what):
            pass


async def test_an_answer_that_is_lost_is_unknown_and_written(
    wire: Wire, store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    story = await Story.begin(store)
    await story.append(story.created())
    append = story.next(story.created(2))
    wire.mute = True
    waiting = asyncio.ensure_future(store.append(append))
    async with asyncio.timeout(20):
        while await beside.fetchval("SELECT version FROM run") != append.after.version:
            pass
    wire.mute = False
    wire.cut()
    with pytest.raises(CommitUnknown):
        await waiting
    assert await store.load(TENANT, story.run.id) == append.after, "it is read back over a new connection"
    story.run = append.after
    await story.append(story.started(2))


async def test_a_connection_that_breaks_before_the_server_has_it_is_unknown_too(
    wire: Wire, store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    story = await Story.begin(store)
    append = story.next(story.created())
    transaction = await locked(beside, story.run.id)
    waiting = asyncio.ensure_future(store.append(append))
    await waits(beside, "Lock")
    wire.cut()
    with pytest.raises(CommitUnknown):
        await waiting
    await beside.fetch(BACKENDS.format("pg_terminate_backend"), "Lock")
    await transaction.rollback()
    assert await story.reloaded(), "the server gave it up with its session"


async def test_a_commit_that_is_still_on_its_way_is_not_called_one_that_did_not_happen(
    wire: Wire, store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The server goes on with it, though nobody hears of it any more: the reading back waits for its turn."""
    story = await Story.begin(store)
    handle = Handle(store, story.run, {})
    transaction = await locked(beside, story.run.id)
    cancelling = asyncio.ensure_future(handle.tell(lambda d: cancel_run(d, "ann")))
    await waits(beside, "Lock")
    wire.cut()
    async with asyncio.timeout(20):
        while not cancelling.done() and await beside.fetchval(WAITING, "Lock") < 2:
            # One transaction sees one state of it otherwise.
            await beside.execute("SELECT pg_stat_clear_snapshot()")
    await transaction.rollback()
    assert await cancelling == ()
    assert (await store.load(TENANT, story.run.id)).status is RunStatus.cancelled


async def test_a_run_whose_making_is_still_on_its_way_is_not_called_one_that_was_not_made(
    wire: Wire, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Whoever heard so would start it again, and have two."""
    agent = Agent("clerk", FakeModel(["Yes.", "Yes."]))
    async with Surefoot(wire.url, [agent], worker=False, secret=SECRET, log=lambda line: None) as sf:
        first = await sf.start(agent, "Well?")
        await sf.cancel(first.id)
        transaction = beside.transaction()
        await transaction.start()
        await beside.execute("SELECT FROM conversation WHERE id = $1 FOR UPDATE", first.conversation_id)
        starting = asyncio.ensure_future(sf.start(agent, "And now?", conversation_id=first.conversation_id))
        await waits(beside, "Lock")
        wire.cut()
        with pytest.raises(CommitUnknown):
            await starting
        await transaction.rollback()
        async with asyncio.timeout(20):
            while len(await sf.store.run_ids(sf.tenant)) < 2:
                pass


async def test_a_store_is_opened_also_where_another_process_names_its_database_just_then(
    place: Place, store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    await beside.execute("DELETE FROM meta WHERE key = 'database'")
    # A transaction sees others as they were at its first look.
    other, names = PostgresStore(place.url, SystemClock()), await asyncpg.connect(place.url)
    async with asyncio.TaskGroup() as tasks:
        async with names.transaction():
            await names.execute("INSERT INTO meta VALUES ('database', 'named', 1, 1)")
            opening = tasks.create_task(other.open())
            await waits(beside, "Lock")
        await opening
    assert await beside.fetchval("SELECT value FROM meta WHERE key = 'database'") == "named"
    await names.close()
    await other.close()


async def test_a_session_that_was_ended_meanwhile_is_replaced(
    store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    story = await Story.begin(store)
    ended = await beside.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert ended >= 1
    assert await store.load(TENANT, story.run.id) == story.run
    for _ in range(3):
        try:
            await story.append(story.created())
        except CommitUnknown:
            # The end of the session came with the statement: nothing is known, until it is read back.
            assert await story.reloaded()
            continue
        break
    assert await story.reloaded() and story.run.step_count == 1


async def test_a_statement_that_is_cancelled_is_unknown(
    store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    story = await Story.begin(store)
    transaction = await locked(beside, story.run.id)
    waiting = asyncio.ensure_future(store.append(story.next(story.created())))
    await waits(beside, "Lock")
    await beside.fetch(BACKENDS.format("pg_cancel_backend"), "Lock")
    with pytest.raises(CommitUnknown):
        await waiting
    await transaction.rollback()
    assert await story.reloaded()
    await story.append(story.created())


async def test_a_lock_that_is_not_given_up_is_a_certain_refusal(
    wire: Wire, beside: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LOCK_SECONDS_MAX", 0.2)
    store = PostgresStore(wire.url, SystemClock())
    await store.open()
    story = await Story.begin(store)
    transaction = await locked(beside, story.run.id)
    with pytest.raises(StoreUnavailable, match="lock"):
        await story.append(story.created())
    await transaction.rollback()
    assert await story.reloaded()
    await story.append(story.created())
    await store.close()


async def test_a_server_that_is_not_there_for_a_moment_is_waited_for(wire: Wire, store: PostgresStore) -> None:
    story = await Story.begin(store)
    wire.refuse = True
    await cut_off(wire, store)
    waiting = [asyncio.ensure_future(store.load(TENANT, story.run.id)), asyncio.ensure_future(store.check_writable())]
    await asyncio.wait(waiting, timeout=0.3)
    assert not waiting[0].done() and not waiting[1].done()
    wire.refuse = False
    assert await waiting[0] == story.run
    await waiting[1]


async def test_a_server_that_stays_away_is_said_to(
    wire: Wire, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.store.postgres.links.OUTAGE_SECONDS_MAX", 0.2)
    wire.refuse = True
    await cut_off(wire, store)
    with pytest.raises(StoreUnavailable):
        await store.load(TENANT, "run_x")
    with pytest.raises(StoreUnavailable):
        await store.check_writable()
    wire.refuse = False
    await store.check_writable()


async def test_a_renewal_without_an_answer_fails_before_the_lease_is_over(
    wire: Wire, store: PostgresStore, beside: asyncpg.Connection[asyncpg.Record]
) -> None:
    story = await Story.begin(store, owner="w", lease_s=3.0)
    transaction = beside.transaction()
    await transaction.start()
    await beside.execute("LOCK TABLE run")
    began = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable, match="renewal"):
        await store.renew(TENANT, {story.run.id: 1}, 3.0)
    assert asyncio.get_running_loop().time() - began < 2.5
    await transaction.rollback()


async def test_secrets_of_the_url_are_told_to_nobody(place: Place) -> None:
    password = "a-password-that-nobody-may-see"
    for url in (
        f"postgresql://anna:{password}@localhost:1/app",
        f"postgresql://localhost:1/app?user=anna&password={password}",
        f"postgresql://anna:{password}@localhost:no-port/app",
        f"postgresql://anna:{password}@localhost/app#part",
        f"postgresql://anna:{password}@localhost/app/more",
    ):
        said = ""
        try:
            store = PostgresStore(url, SystemClock())
            said = store.path + repr(store._address)
            await store.open()
        except (InvalidInput, StoreUnavailable) as error:
            said += f"{error!r} {error.details} {error.__cause__!r} {error.__context__!r}"
        assert said and password not in said, said


async def test_the_keyring_has_to_be_given(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUREFOOT_SECRET")
    with pytest.raises(InvalidInput, match="set SUREFOOT_SECRET"):
        async with Surefoot(place.url):
            pass
    gc.collect()  # a connection that was left open says so here


def test_options_of_the_url() -> None:
    assert read_address("postgresql://u:p@a:1,b:2/x").name == "postgresql://a:1,b:2/x"
    assert "target_session_attrs=primary" in read_address("postgresql://u:p@a:1,b:2/x").dsn
    pooled = read_address("postgresql://u@a/x?statement_cache_size=0&sslmode=require")
    assert pooled.pooled and "statement_cache_size" not in pooled.dsn and "sslmode=require" in pooled.dsn
    assert not read_address("postgres://u@a/x").pooled


@pytest.mark.parametrize(
    ("where", "next_action"),
    [
        ("/surefoot?host=/no/such/folder", "start it, or name the folder of its socket"),
        ("127.0.0.1:1/surefoot", "start the server, or check host and port"),
        ("no-such-host.invalid/surefoot", "check the name of the host"),
    ],
)
async def test_a_server_that_is_not_there_is_told_with_what_to_do(
    where: str, next_action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "OUTAGE_SECONDS_MAX", 0.0)
    with pytest.raises(StoreUnavailable, match=next_action) as refused:
        await PostgresStore(f"postgresql://ann:hush@{where}", SystemClock()).open()
    assert "hush" not in str(refused.value)


async def test_no_room_for_temporary_files_stops_workers_only_and_blames_no_server(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").touch()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "full"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    store = PostgresStore(place.url, SystemClock())
    await store.open()
    assert await store.run_ids(TENANT) == []
    with pytest.raises(StoreUnavailable, match=r"lock files.*Make room there, or set XDG_RUNTIME_DIR"):
        await store.register_worker("w")
    await store.close()


def listens(store: PostgresStore) -> bool:
    """Whether its session for news is there."""
    return store._listener is not None and store._listener.listens


async def test_workers_that_wait_are_counted_and_those_that_are_gone_are_not(
    store: PostgresStore, place: Place
) -> None:
    async def counted() -> int:
        return (await store.counts(TENANT)).workers

    other = PostgresStore(place.url, SystemClock())
    await other.open()
    for number, one in enumerate((store, other)):
        one._listen()
        await eventually(partial(listens, one), "the session")
        await one.register_worker(f"w{number}")
        assert not await one.claim(TENANT, f"w{number}", {"reviewer": "1"}, 30.0, 10)
    assert await counted() == 2
    other.abandon()
    async with asyncio.timeout(20.0):
        while await counted() != 1:
            # Each look is a way to the server and back.
            continue


@pytest.mark.parametrize("leased", [False, True])
async def test_a_worker_that_stops_before_it_is_written_down_again_is_taken_out(
    store: PostgresStore, place: Place, leased: bool
) -> None:
    """Its row was written, and the session that it listens on began only then."""
    other = PostgresStore(place.url, SystemClock())
    await other.open()
    story = await Story.begin(store) if leased else None
    await other.register_worker("w")
    assert len(
        await other.claim(TENANT, "w", {story.run.agent: story.run.agent_version} if story else {}, 30.0, 1)
    ) == (1 if leased else 0)
    lock = other._workers._locks["w"]
    other._listen()
    await eventually(lambda: listens(other) and not other._workers.is_recorded(TENANT, "w"), "another session")
    await other.close()
    assert (await store.counts(TENANT)).workers == (1 if leased else 0)
    assert Path(lock.path).exists() == leased, "who holds a lease may still send: nothing proves its end"
    lock.release()


# On a server of its own ----------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    # Not in pytest's folder, which the user that runs the server may not enter.
    with tempfile.TemporaryDirectory(prefix="surefoot-server-") as folder:
        made = Server(Path(folder))
        made.make()
        yield made
        made.remove()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_may_lose_commits_is_refused(server: Server, setting: str) -> None:
    server.start({setting: "off"})
    with pytest.raises(StoreUnsupported, match=setting):
        await PostgresStore(server.url(), SystemClock()).open()


async def test_a_commit_never_waits_for_less_than_the_disk(server: Server) -> None:
    server.start({"synchronous_commit": "off"})
    store = PostgresStore(server.url(), SystemClock())
    await store.open()
    writer = await store._links.writer()
    assert (await writer.rows("SHOW synchronous_commit"))[0]["synchronous_commit"] == "on"
    await store.close()


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_server_that_is_set_to_serializable_is_asked_for_less(server: Server, pooled: bool) -> None:
    """What waits for a row that another worker has would be refused there, and begun again."""
    server.start({"default_transaction_isolation": "serializable"})
    store = PostgresStore(server.url() + ("&statement_cache_size=0" if pooled else ""), SystemClock())
    await store.open()
    writer = await store._links.writer()
    async with writer.transaction():
        assert (await writer.rows("SHOW transaction_isolation"))[0]["transaction_isolation"] == "read committed"
    (alone,) = await writer.rows("SHOW transaction_isolation")
    assert (alone["transaction_isolation"] == "read committed") != pooled, "behind a pooler the session is everybody's"
    await store.close()


async def test_a_standby_that_has_not_confirmed_is_unknown(server: Server) -> None:
    server.start({"synchronous_standby_names": ""})
    store = PostgresStore(server.url(), SystemClock())
    await store.open()
    story = await Story.begin(store)
    beside = await asyncpg.connect(server.url())
    await beside.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.stop()
    server.start()
    beside.terminate()
    append = story.next(story.created())
    waiting = asyncio.ensure_future(store.append(append))
    beside = await asyncpg.connect(server.url())
    await waits(beside, "IPC")
    assert not waiting.done(), "the commit is not acknowledged before the standby has it"
    await beside.fetch(BACKENDS.format("pg_cancel_backend"), "IPC")
    with pytest.raises(CommitUnknown):
        await waiting
    assert await store.load(TENANT, story.run.id) == append.after
    await beside.execute("ALTER SYSTEM RESET synchronous_standby_names")
    await beside.execute("SELECT pg_reload_conf()")
    await beside.close()
    await store.close()


async def test_a_worker_whose_session_has_ended_is_relieved_but_not_dead(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.store.postgres.workers.SESSION_SECONDS", 0.3)
    gone, alive = PostgresStore(place.url, SystemClock()), PostgresStore(place.url, SystemClock())
    gone._workers._host = "another-host"
    await gone.open()
    await alive.open()
    gone._listen()
    await eventually(lambda: gone._listener is not None and gone._listener.listens, "the other worker listens")
    story = await Story.begin(gone, owner="w", lease_s=600.0)
    assert await alive.claim(TENANT, "v", {"reviewer": "1"}, 30.0, 10) == []
    gone.abandon()
    taken: list[Claimed] = []
    async with asyncio.timeout(20):
        while not taken:
            taken = await alive.claim(TENANT, "v", {"reviewer": "1"}, 30.0, 10)
    (one,) = taken
    assert (one.run_id, one.token, one.owner_died) == (story.run.id, 2, False)
    await alive.close()


async def test_leases_that_were_won_are_told_of_though_the_next_statement_fails(place: Place) -> None:
    """A claim is two commits, and tidying behind them: nobody would drive what the first one took."""
    failing: list[str] = []

    def hook(name: str, when: str) -> None:
        if (name, when) == ("commit", "before") and failing and failing.pop() == "fails":
            raise StoreUnavailable("the server is away")

    store = PostgresStore(place.url, SystemClock(), hook)
    await store.open()
    story = await Story.begin(store)
    assert await store.claim(TENANT, "w", {"another": "1"}, 30.0, 10) == []  # the worker's row is written
    failing += ["fails", "passes"]
    (one,) = await store.claim(TENANT, "w", {"reviewer": "1"}, 30.0, 10)
    assert (one.run_id, one.token, failing) == (story.run.id, 1, [])
    await store.close()


async def test_a_claim_is_unclear_where_one_of_its_statements_is(place: Place) -> None:
    """What its second statement took stood idle until its end: the first one's leases were told as if they were all."""
    lost: list[str] = []

    def hook(name: str, when: str) -> None:
        if (name, when) == ("commit", "after") and lost and lost.pop() == "lost":
            raise ConnectionError("the answer was lost")

    store = PostgresStore(place.url, SystemClock(), hook)
    await store.open()
    ready, asked = await Story.begin(store, 1), await Story.begin(store, 2)
    await asked.wait_for_person(expires_s=0.0)
    assert await store.claim(TENANT, "w", {"another": "1"}, 30.0, 10) == []  # the worker's row is written
    lost += ["lost", "passes"]
    with pytest.raises(CommitUnknown):
        await store.claim(TENANT, "w", {"reviewer": "1"}, 30.0, 10)
    assert not lost and await store.leases(TENANT, "w") == {ready.run.id: 1, asked.run.id: 1}
    await store.close()
