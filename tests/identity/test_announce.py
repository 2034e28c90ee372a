"""Announcements: signed, each question at least once, with what a person needs and no secret; also after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from types import ModuleType

import msgspec
import pytest
from msgspec.structs import replace

from surefoot.errors import InvalidInput
from surefoot.server import announce, signatures
from surefoot.server.announce import Announcer
from surefoot.server.meters import Meters
from surefoot.server.options import Options
from surefoot.testing.world import TOKEN
from tests.cli.rig import Cli
from tests.identity.rig import Rig, rig_of
from tests.places import Place
from tests.server.rig import serving
from tests.support import eventually, eventually_sync

SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSBhbm5vdW5jZW1lbnRz"
EXAMPLE = Path(__file__).parents[2] / "examples" / "slack_announcer.py"


class Told(msgspec.Struct, frozen=True):
    """A request that arrived."""

    headers: Mapping[str, str]
    body: bytes

    def check(self, now: float) -> dict[str, object]:
        assert signatures.check([SECRET], self.headers, self.body, now) is None
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


class Receiver:
    """A hook: what came in, and what it answers next; None closes without an answer."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.answers: list[int | None] = []
        self.retry_after: str | None = None
        self.url = ""

    def answer(self) -> int | None:
        return self.answers.pop(0) if self.answers else 204


@contextmanager
def receiving() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.told.append(Told({name.lower(): value for name, value in self.headers.items()}, body))
            status = found.answer()
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if found.retry_after is not None:
                self.send_header("Retry-After", found.retry_after)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/hook/its-secret-path"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def options(receiver: Receiver) -> Options:
    return Options(
        public_url="https://agents.example/",
        announce_url=receiver.url,
        announce_secrets=(SECRET, "what signed before it"),
    )


@asynccontextmanager
async def announcing(rig: Rig, receiver: Receiver) -> AsyncIterator[Announcer]:
    made = Announcer(rig.sf, options(receiver), Meters())
    made.begin()
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "BACKOFF_SECONDS", (0.02, 0.05))


async def asked(rig: Rig) -> str:
    run = await rig.sf.start("reviewer", "Review it")
    await rig.sf.wait(run.id, timeout=20)
    (row,) = await rig.sf.actions(status="waiting", run_id=run.id)
    return row.action.id


async def test_a_question_is_announced_once_with_a_link(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"Looks good. By the way, ghp_{'a1B2' * 9} works."
    with receiving() as receiver:
        async with rig_of(place, monkeypatch, gated=True, body=body) as rig, announcing(rig, receiver):
            action_id = await asked(rig)
            await eventually(lambda: receiver.told, "the announcement")
            (first,) = receiver.told
            told = first.check(rig.sf.doors.clock.now().wall)
            assert first.headers["webhook-id"] == action_id and told["type"] == "pending_action.waiting"
            data = told["data"]
            assert isinstance(data, dict) and data["action"]["id"] == action_id and data["tenant"] == "default"
            assert data["action"]["preview"]["target"] and data["action"]["input_hash"]
            assert "ghp_" not in first.body.decode() and TOKEN not in first.body.decode()
            assert str(data["url"]).startswith("https://agents.example/links/")
            page = await rig.http.get(str(data["url"]).removeprefix("https://agents.example"))
            assert page.status_code == 200, "a link of this server"
            again = await asked(rig)
            await eventually(lambda: len(receiver.told) == 2, "the second question")
            assert [t.headers["webhook-id"] for t in receiver.told] == [action_id, again]


async def test_it_comes_again_until_it_was_taken(place: Place, monkeypatch: pytest.MonkeyPatch, soon: None) -> None:
    lines: list[str] = []
    with receiving() as receiver:
        receiver.answers = [500, None, 429, 404, 302, 204]
        async with rig_of(place, monkeypatch, gated=True) as rig:
            monkeypatch.setattr(rig.sf, "_log", lines.append)
            async with announcing(rig, receiver) as made:
                action_id = await asked(rig)
                await eventually(lambda: len(receiver.told) >= 3, "three attempts")
                assert {t.headers["webhook-id"] for t in receiver.told} == {action_id}
                assert made.hook not in receiver.url
        assert lines and not any("its-secret-path" in line for line in lines)
        assert any("http_500" in line for line in lines)


async def test_a_receiver_cannot_ask_for_a_silence_that_outlasts_the_question(
    place: Place, monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    with receiving() as receiver:
        receiver.answers, receiver.retry_after = [503], "315360000"
        async with rig_of(place, monkeypatch, gated=True) as rig, announcing(rig, receiver):
            await asked(rig)
            await eventually(lambda: len(receiver.told) == 2, "the second attempt")


async def test_a_receiver_that_is_gone_is_not_asked_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    with receiving() as receiver:
        receiver.answers = [410]
        async with rig_of(place, monkeypatch, gated=True) as rig, announcing(rig, receiver) as made:
            await asked(rig)
            await eventually(lambda: receiver.told, "the announcement")

            async def nothing_more() -> bool:
                return await rig.sf.store.next_announcement("default", made.hook, announce.ATTEMPTS_MAX) is None

            while not await nothing_more():
                await rig.sf.store.changed(rig.sf.store.change_count(), 0.1)
            assert len(receiver.told) == 1


async def test_an_answered_question_is_not_announced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        async with rig_of(place, monkeypatch, gated=True) as rig:
            action_id = await asked(rig)
            await rig.sf.reject(action_id, by="ann")
            made = Announcer(rig.sf, options(receiver), Meters())
            assert await made.announce_due() == 0
            other = await asked(rig)
            assert await made.announce_due() == 1
            assert [t.headers["webhook-id"] for t in receiver.told] == [other]
            assert await made.announce_due() == 0


async def test_two_servers_announce_it_once_between_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        async with rig_of(place, monkeypatch, gated=True) as rig:
            await asked(rig)
            both = [Announcer(rig.sf, options(receiver), Meters()) for _ in range(2)]
            assert sum(await asyncio.gather(*(made.announce_due() for made in both))) == 1
            assert len(receiver.told) == 1


async def test_without_a_secret_nothing_is_announced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        async with rig_of(place, monkeypatch, gated=True) as rig:
            with pytest.raises(InvalidInput):
                Announcer(rig.sf, replace(options(receiver), announce_secrets=()), Meters())


@pytest.mark.prove
def test_a_killed_server_is_followed_by_one_that_announces(place: Place) -> None:
    with receiving() as receiver:
        receiver.answers = [500]
        settings = {"SUREFOOT_ANNOUNCE_URL": receiver.url, "SUREFOOT_ANNOUNCE_SECRET": SECRET}
        with serving(place, more=settings) as web:
            _, action_id = web.asked("writer")
            eventually_sync(lambda: receiver.told, "the first attempt")
            web.kill()
            first_log = web.log.read_text()
        before = len(receiver.told)
        with serving(place, more=settings) as web:
            eventually_sync(lambda: len(receiver.told) > before, "another attempt", seconds_max=40)
            assert {told.headers["webhook-id"] for told in receiver.told} == {action_id}
            log = first_log + web.log.read_text()
        assert "its-secret-path" not in log and SECRET not in log
    link = Cli(place).json("actions", "link", action_id, "--for", "ann").record()
    assert str(link["url"]).startswith("http://127.0.0.1:8100/links/") and link["person"] == "ann"


def _example() -> ModuleType:
    spec = spec_from_file_location("slack_announcer", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_for_slack_sends_no_section_that_slack_refuses() -> None:
    preview = {"text": "Why? & " * 800, "tool": "ask_person", "target": "t" * 5_000, "arguments": {"q": "&" * 9_000}}
    message = _example().slack_message({"data": {"action": {"preview": preview}, "url": "https://agents.example/l"}})
    assert max(len(block["text"]["text"]) for block in message["blocks"] if "text" in block) <= 3_000


async def test_the_example_for_slack_takes_what_we_send(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Mapping[str, object]] = []
    example = _example()
    send: Callable[[Mapping[str, object]], None] = sent.append
    server = example.server(0, "a secret of the example, long enough", send)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        async with rig_of(place, monkeypatch, gated=True, body="<b>&") as rig:
            action_id = await asked(rig)
            url = f"http://127.0.0.1:{server.server_port}/"
            wrong = Options(announce_url=url, announce_secrets=("another secret of the example",))
            assert await Announcer(rig.sf, wrong, Meters()).announce_due() == 1
            assert sent == []
            good = replace(wrong, announce_url=url + "?a", announce_secrets=("a secret of the example, long enough",))
            for number in range(2):
                told = replace(good, announce_url=f"{url}?{number}")
                assert await Announcer(rig.sf, told, Meters()).announce_due() == 1
            (message,) = sent
            text = json.dumps(message)
            assert "create_issue_comment" in text and "/links/" in text and action_id
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
