"""The command line against a server: the same commands, the same documents, the same exit codes as on the store."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from surefoot.cli.desk import Blocked
from surefoot.cli.remote import Remote
from surefoot.core.state import Instant
from surefoot.doors import SystemClock
from surefoot.errors import NotFound, StoreUnavailable
from surefoot.http import system_doors
from surefoot.snapshot import RunEvent
from tests.cli.rig import Cli
from tests.places import NewPlace, Place
from tests.server.house import Outside, house
from tests.server.rig import Served, serving
from tests.support import eventually, eventually_sync


@pytest.fixture(scope="module")
def web(new_place: NewPlace) -> Iterator[Served]:
    """One server for all of them."""
    with serving(new_place()) as served:
        yield served


@pytest.fixture
def cli(web: Served) -> Cli:
    """The command line in the server's folder."""
    return web.cli


def both(cli: Cli, web: Served, *words: str) -> object:
    """What a command that changes nothing says to the store and to the server, which is the same."""
    local, remote = cli.json(*words), cli.json(*words, "--url", web.url)
    assert (local.code, local.value()) == (remote.code, remote.value())
    people = cli.run(*words), cli.run(*words, "--url", web.url)
    assert people[0].out == people[1].out
    return remote.value()


def both_know_nothing(cli: Cli, web: Served, *words: str) -> None:
    """That both say so of an id, and where they looked."""
    for where, at in (("--store and --tenant", ()), (f" at {web.url}: check the id and --url", ("--url", web.url))):
        told = cli.json(*words, *at)
        assert (told.code, told.error) == (5, "not_found") and where in told.out, told


def test_a_story_by_the_command_line_alone(cli: Cli, web: Served) -> None:
    at = ("--url", web.url)
    started = cli.json("runs", "start", "agents.py:writer", "Go", "--key", "k", *at)
    run_id = str(started.record()["id"])
    assert started.code == 0
    assert cli.json("runs", "start", "writer", "Go", "--key", "k", *at).record()["id"] == run_id, "the name is enough"
    waiting = cli.json("runs", "watch", run_id, *at)
    assert waiting.code == 3 and "Calling" not in waiting.err and "waits for an answer" in waiting.err
    (action,) = cli.json("actions", "list", "--status", "waiting", "--run", run_id, *at).records()
    approved = cli.json("actions", "approve", str(action["id"]), "--key", "d", "--reason", "fine", *at)
    assert (approved.code, approved.record()["decision"]) == (0, "approve")
    assert cli.json("actions", "approve", str(action["id"]), "--key", "d", "--reason", "fine", *at) == approved
    late = cli.json("actions", "reject", str(action["id"]), *at)
    assert (late.code, late.error) == (5, "already_decided")
    watched = cli.json("runs", "watch", run_id, *at)
    assert (watched.code, watched.record()["status"]) == (0, "completed")
    told = watched.record()["events"]
    assert isinstance(told, list) and [e["sequence"] for e in told] == list(range(1, len(told) + 1))
    both(cli, web, "runs", "show", run_id)
    both(cli, web, "runs", "show", run_id, "--messages")
    both(cli, web, "runs", "watch", run_id)
    both(cli, web, "runs", "list", "--agent", "writer")
    both(cli, web, "runs", "list", "--limit", "1")
    both(cli, web, "actions", "list")
    both(cli, web, "actions", "show", str(action["id"]))
    both_know_nothing(cli, web, "runs", "show", "run_none")
    both_know_nothing(cli, web, "actions", "show", "act_none")
    both_know_nothing(cli, web, "actions", "list", "--run", "run_none")
    late = cli.json("runs", "message", run_id, "thanks", *at)
    assert (late.code, late.error) == (5, "run_ended") and "--conversation conv_" in late.out
    both(cli, web, "runs", "cancel", run_id)
    both(cli, web, "runs", "retry", run_id)


def test_a_run_is_waited_for(cli: Cli, web: Served) -> None:
    done = cli.json("runs", "start", "talker", "Hello", "--wait", "--url", web.url)
    assert (done.code, done.record()["result"]) == (0, {"text": "Hello."})


def test_questions_are_resolved_and_answered(cli: Cli, web: Served) -> None:
    at = ("--url", web.url)
    run_id, action_id = web.asked("shouter")
    wrong = cli.json("actions", "approve", action_id, *at)
    assert (wrong.code, wrong.error) == (5, "wrong_decision")
    given = cli.json(
        "actions", "resolve", action_id, "--happened", "--id", "echo", "--link", "https://x.example/1", *at
    )
    assert given.record()["decision"] == "happened"
    web.until(run_id, "completed")
    _, broken = web.asked("locked_out")
    answered = cli.json("actions", "answer", broken, "try_again", *at)
    assert answered.record().get("answer") == "try_again", answered


def test_a_cancel_lists_what_may_have_been_sent(cli: Cli, web: Served) -> None:
    run_id, _ = web.asked("shouter", key="another")
    receipt = cli.json("runs", "cancel", run_id, "--url", web.url).record()
    sent = receipt["may_have_been_sent"]
    assert isinstance(sent, list) and [step["tool_name"] for step in sent] == ["shout"]


def test_wrong_use_is_refused_before_anything_is_asked(cli: Cli, web: Served) -> None:
    for words in (
        ("doctor", "--url", web.url),
        ("runs", "list", "--url", web.url, "--store", "sqlite:///x.db"),
        ("runs", "start", "writer", "Go", "--by", "eve", "--url", web.url),
        ("runs", "list", "--tenant", "acme", "--url", web.url),
        ("actions", "link", "act_none", "--url", web.url),
    ):
        assert (cli.json(*words).code, cli.json(*words).error) == (2, "wrong_use"), words
    for url in ("127.0.0.1:8100", "ftp://x", "http://"):
        assert cli.json("runs", "list", "--url", url).error == "bad_setting"
    named = cli.json("runs", "list", "--url", "http://anna:hunter2@127.0.0.1:8100")
    assert named.error == "bad_setting" and "hunter2" not in named.out + named.err


PLACE = "https://agents.example"


def test_a_server_in_the_environment_is_not_forgotten(cli: Cli) -> None:
    at = {"SUREFOOT_URL": PLACE}
    for words in (
        ("doctor",),
        ("export",),
        ("prune",),
        ("tokens", "list"),
        ("tokens", "create", "anna", "--permission", "read"),
        ("actions", "link", "act_none"),
        ("db", "upgrade"),
    ):
        refused = cli.run(*words, "--json", more={**at, "SUREFOOT_STORE": ""})
        assert (refused.code, refused.error) == (2, "wrong_use") and PLACE in refused.out, words
        assert "--store" in refused.out, "it names the way on"
    for flag in ("--by", "--tenant"):
        refused = cli.run("runs", "cancel" if flag == "--by" else "show", "run_none", flag, "eve", "--json", more=at)
        assert (refused.code, refused.error) == (2, "wrong_use") and "token" in refused.out, flag
    decided = cli.run("actions", "approve", "act_none", "--by", "eve", "--json", more=at)
    assert decided.error == "wrong_use", "nobody decides in another's name by an option that is dropped"
    named = "sqlite:///surefoot.db"
    assert cli.run("doctor", "--store", named, more=at).code == 0
    assert cli.run("doctor", more={**at, "SUREFOOT_STORE": named}).code == 0
    own = cli.run("runs", "list", "--store", named, "--json", more=at)
    assert own.code == 0 and isinstance(own.value(), list), "a flag stands before the environment"


def test_no_store_is_made_where_a_server_is_meant(place: Place) -> None:
    cli = Cli(place)
    for words in (("doctor",), ("export",), ("prune",), ("tokens", "list"), ("runs", "list"), ("actions", "link", "x")):
        assert cli.run(*words, more={"SUREFOOT_URL": "http://127.0.0.1:1", "SUREFOOT_STORE": ""}).code != 0
    assert sorted(file.name for file in place.folder.iterdir()) == ["agents.py"]


def test_a_message_that_is_said_again_under_its_key_is_one(cli: Cli, web: Served) -> None:
    run_id, action_id = web.asked("writer", key="talkative")
    for at in (("--url", web.url), ()):
        for _ in range(2):
            assert cli.json("runs", "message", run_id, "Mind the tests.", "--key", "m", *at).code == 0
        other = cli.json("runs", "message", run_id, "Mind the docs.", "--key", "m", *at)
        assert (other.code, other.error) == (5, "key_reused")
    conversation = web.get(f"/v1/runs/{run_id}/messages").record()
    assert isinstance(conversation["queued"], list) and len(conversation["queued"]) == 1
    assert web.decide(action_id, "reject").status == 200


def test_a_link_says_when_it_leads_to_this_machine_only(cli: Cli, web: Served) -> None:
    _, action_id = web.asked("writer", key="linked")
    guessed = cli.json("actions", "link", action_id)
    assert str(guessed.record()["url"]).startswith("http://127.0.0.1:8100/links/") and "--public-url" in guessed.err
    for words, more in (((), {"SUREFOOT_PUBLIC_URL": PLACE}), (("--public-url", f"{PLACE}/"), {})):
        told = cli.run("actions", "link", action_id, *words, "--json", more=more)
        assert str(told.record()["url"]).startswith(f"{PLACE}/links/") and told.err == ""
    assert cli.json("actions", "link", action_id, "--public-url", "agents.example").error == "bad_setting"
    for hours in ("inf", "nan", "8761", "1e300", "0", "-1", "long"):
        refused = cli.json("actions", "link", action_id, f"--hours={hours}")
        assert refused.code == 2 and "above 0 and at most 8760" in refused.out
    assert cli.json("actions", "link", action_id, "--hours", "8760").code == 0


def test_a_server_that_asks_for_a_token_says_how_to_give_it(place: Place) -> None:
    with serving(place, more={"SUREFOOT_TOKENS": "anna read " + "a" * 40}) as web:
        cli = Cli(place)
        for more, code in (({}, "not_signed_in"), ({"SUREFOOT_TOKEN": "b" * 40}, "bad_token")):
            refused = cli.run("runs", "list", "--url", web.url, "--json", more=more)
            assert (refused.code, refused.error) == (5, code) and "SUREFOOT_TOKEN" in refused.out
        assert cli.run("runs", "list", "--url", web.url, more={"SUREFOOT_TOKEN": "a" * 40}).code == 0
        assert f"the page is {web.url}/ (by token)" in web.log.read_text()


def test_the_server_tells_each_event_of_a_run_once(place: Place) -> None:
    with serving(place) as web:
        run_id, action_id = web.asked("writer")
        web.decide(action_id, "approve")
        web.until(run_id, "completed")
        eventually_sync(lambda: "The run is completed" in web.log.read_text(), "the story's end")
        lines = [line for line in web.log.read_text().splitlines() if line.startswith(run_id)]
        assert len(lines) == len(set(lines)) and sum("The run began" in line for line in lines) == 1, lines


class Impatient:
    """A clock whose waits are short; it remembers how long they would have been."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._clock = SystemClock()

    def now(self) -> Instant:
        return self._clock.now()

    def boot_id(self) -> str:
        return self._clock.boot_id()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self._clock.sleep(0.01)


async def test_who_follows_waits_for_a_server_that_is_down_and_misses_nothing(place: Place) -> None:
    clock, notes, told = Impatient(), list[str](), list[int]()
    doors = msgspec.structs.replace(system_doors(), clock=clock)

    def tell(events: Sequence[RunEvent], tools: object) -> None:
        told.extend(event.sequence for event in events)

    with serving(place) as first:
        run_id, action_id = first.asked("writer")
        assert first.decide(action_id, "approve").status == 200
        first.until(run_id, "completed")
        gate_id = str(first.start("gatekeeper").record()["id"])
        async with Remote(first.url, None, "en", notes.append, doors) as at:
            following = asyncio.ensure_future(at.follow(gate_id, 0, tell, Blocked(notes.append)))
            await eventually(lambda: "begun" in "".join(Cli(place).sent), "the call to begin", seconds_max=30)
            await eventually(lambda: bool(told), "an answer, without which the address may be wrong", seconds_max=30)
            await asyncio.to_thread(first.kill)
            await eventually(lambda: len(clock.waits) > 16, "many tries of a server that is down", seconds_max=60)
            assert not following.done()
            assert [line for line in notes if "waiting for the server" in line] == notes and len(notes) == 1
            assert max(clock.waits) <= 10.0 and sum(clock.waits) > 60.0, "with back-off, for much longer than 3 s"
            (place.folder / "gate").touch()
            with serving(place, port=first.port) as second:
                run = await asyncio.wait_for(following, 60)
                last = second.get(f"/v1/runs/{gate_id}").record()["last_event_sequence"]
    assert "answers again" in notes[1] and run.last_event_sequence == last
    assert told == list(range(1, run.last_event_sequence + 1))


@pytest.mark.sqlite_only("another connection keeps the store from taking the run")
async def test_a_start_whose_first_answer_was_lost_is_waited_for(place: Place, outside: Outside) -> None:
    clock = Impatient()
    doors = msgspec.structs.replace(system_doors(), clock=clock)
    async with house(place, [outside.writer()]) as at, Remote(at.running.url, None, "en", print, doors) as desk:
        with contextlib.closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            body = {"agent": "writer", "input": "Go"}
            lost = asyncio.ensure_future(at.client.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"}))
            again = asyncio.ensure_future(desk.start("writer", "Go", key="k", conversation=None, metadata=None))
            await eventually(lambda: len(clock.waits) >= 4, "more tries than a server that is away is asked for")
            other.rollback()
        first = await lost
        assert (await again).id == first.json()["id"]


async def test_a_command_whose_answer_is_lost_says_how_it_is_said_again(place: Place) -> None:
    clock = Impatient()
    doors = msgspec.structs.replace(system_doors(), clock=clock)

    async def lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n")
        writer.close()

    server = await asyncio.start_server(lose, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Remote(f"http://127.0.0.1:{port}", None, "en", print, doors) as desk:
        with pytest.raises(StoreUnavailable, match=r"--key ([0-9a-f]{32})") as told:
            await desk.message("run_1", "Go on.", None)
        assert f"--key {told.value.details['key']}" in str(told.value)
        with pytest.raises(StoreUnavailable) as named:
            await desk.message("run_1", "Go on.", "own")
        assert "--key" not in str(named.value)
    async with Remote("http://127.0.0.1:1", None, "en", print, doors) as desk:
        with pytest.raises(StoreUnavailable) as away:
            await desk.message("run_1", "Go on.", None)
    assert "--key" not in str(away.value), "nothing was sent"


async def test_what_another_try_does_not_mend_ends_the_watch(place: Place, outside: Outside) -> None:
    async with house(place, [outside.writer()]) as at:
        run_id, _ = await at.asked()
        url, notes = at.running.url, list[str]()
        async with Remote(url, None, "en", notes.append) as desk:
            with pytest.raises(NotFound):
                await desk.follow("run_none", 0, lambda events, tools: None, Blocked(notes.append))
            run = await desk.follow(run_id, 0, lambda events, tools: None, Blocked(notes.append))
    assert run.status == "waiting_for_user" and notes == []
    async with Remote(
        url, None, "en", notes.append, msgspec.structs.replace(system_doors(), clock=Impatient())
    ) as desk:
        with pytest.raises(StoreUnavailable) as never_there:
            await desk.follow(run_id, 0, lambda events, tools: None, Blocked(notes.append))
    assert never_there.value.code == "server_unreachable", "an address at which nobody ever answered may be wrong"


def test_a_server_out_of_reach_is_said_so(cli: Cli, web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.cli.remote.PAUSE_SECONDS", 0.001)
    nobody = cli.json("runs", "list", "--url", "http://127.0.0.1:1")
    assert (nobody.code, nobody.error) == (4, "server_unreachable")
    no_server = cli.json("runs", "list", "--url", f"{web.url}/elsewhere")
    assert (no_server.code, no_server.error) == (5, "no_such_path")
    assert cli.run("runs", "list", more={"SUREFOOT_URL": "http://127.0.0.1:1"}).code == 4
