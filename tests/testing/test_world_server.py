"""The World's faults over real sockets, as an HTTP client sees them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from surefoot.testing import faults as f
from surefoot.testing.wire import Applied, Replied, read_log
from surefoot.testing.world import TOKEN, World
from surefoot.testing.world_server import WorldServer
from tests.support import eventually

COMMENTS = "/repos/acme/app/issues/128/comments"


def make_world(*rules: f.Rule) -> World:
    world = World(now=time.time(), rules=rules)
    world.add_pull("acme/app", 128)
    return world


@asynccontextmanager
async def serve(
    world: World, *, timeout: float = 5.0, log_file: Path | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        WorldServer(world, log_file=log_file) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, trust_env=False) as client,
    ):
        yield client


async def post(client: httpx.AsyncClient, body: str = "hello") -> httpx.Response:
    return await client.post(COMMENTS, json={"body": body})


def count(world: World) -> int:
    return len(world.comments("acme/app", 128))


async def until(world: World, comments: int) -> None:
    await eventually(lambda: count(world) >= comments, f"{comments} comments in the World")


async def test_many_requests_go_over_one_connection() -> None:
    world = make_world()
    world.add_comments("acme/app", 128, 250)
    async with serve(world) as client:
        made = await post(client)
        assert (made.status_code, made.http_version) == (201, "HTTP/1.1")
        url: str | None = f"{COMMENTS}?per_page=100"
        seen: list[int] = []
        while url is not None:
            page = await client.get(url)
            seen += [item["id"] for item in page.json()]
            url = page.links.get("next", {}).get("url")
        assert len(seen) == 251 and seen[-1] == made.json()["id"]
        assert (await client.head("/user")).content == b""
        assert (await client.delete(f"/repos/acme/app/issues/comments/{seen[-1]}")).status_code == 204


async def test_a_redirect_leads_to_the_new_place() -> None:
    world = make_world()
    world.rename_repo("acme/app", "acme/new")
    async with serve(world) as client:
        assert (await client.get(COMMENTS)).status_code == 301
        assert (await client.get(COMMENTS, follow_redirects=True)).status_code == 200


@pytest.mark.parametrize(("how", "error"), [("reset", httpx.ReadError), ("fin", httpx.RemoteProtocolError)])
@pytest.mark.parametrize(("kind", "comments"), [(f.LostRequest, 0), (f.LostReply, 1)])
async def test_r13_a_lost_request_or_reply_closes_the_connection(
    how: f.Drop, error: type[Exception], kind: type[f.LostRequest | f.LostReply], comments: int
) -> None:
    world = make_world(f.Rule(kind(how), method="POST"))
    async with serve(world) as client:
        with pytest.raises(error):
            await post(client)
        assert count(world) == comments
        assert (await post(client)).status_code == 201


@pytest.mark.parametrize("applied", [False, True])
async def test_r13_a_hang_ends_only_with_the_clients_patience(applied: bool) -> None:
    world = make_world(f.Rule(f.Hang(applied=applied), method="POST"))
    async with serve(world, timeout=0.2) as client:
        with pytest.raises(httpx.ReadTimeout):
            await post(client)
    assert count(world) == int(applied)


async def test_a_hang_with_an_end_closes_without_a_word() -> None:
    world = make_world(f.Rule(f.Hang(0.1), method="POST"))
    async with serve(world) as client:
        before = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):
            await post(client)
        assert time.monotonic() - before >= 0.09


@pytest.mark.parametrize("how", ["reset", "fin"])
async def test_r13_a_reply_breaks_off_in_its_body(how: str) -> None:
    world = make_world(f.Rule(f.ResetMidBody(10, "reset" if how == "reset" else "fin"), method="POST"))
    async with serve(world) as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await post(client)
    assert count(world) == 1
    assert [entry.end for entry in world.log if isinstance(entry, Replied)] == ["cut"]


async def test_c003_a_status_before_and_after_the_effect() -> None:
    world = make_world(
        f.Rule(f.StatusAfter(502)),
        f.Rule(f.StatusBefore(502), nth=2),
        f.Rule(f.StatusBefore(429, {"retry-after": "7"}), nth=3),
    )
    async with serve(world) as client:
        answers = [await post(client) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [502, 502, 429]
    assert answers[2].headers["retry-after"] == "7"
    assert count(world) == 1


async def test_a_reply_is_delayed() -> None:
    world = make_world(f.Rule(f.Delay(0.2), method="POST"))
    async with serve(world) as client:
        task = asyncio.create_task(post(client))
        await until(world, 1)
        assert not task.done()
        assert (await task).status_code == 201


async def test_r14_a_late_request_takes_effect_after_its_sender_gave_up() -> None:
    world = make_world(f.Rule(f.Late(0.3), method="POST"))
    async with serve(world, timeout=0.1) as client:
        with pytest.raises(httpx.ReadTimeout):
            await post(client)
        assert count(world) == 0
        await until(world, 1)
    came, effect = world.requests("POST")[0], next(entry for entry in world.log if isinstance(entry, Applied))
    assert effect.at - came.at == pytest.approx(0.3)


@pytest.mark.parametrize("fault", [f.BadJson(), f.EmptyBody()])
async def test_c010_a_body_that_cannot_be_read(fault: f.AnyFault) -> None:
    async with serve(make_world(f.Rule(fault))) as client:
        answer = await client.get(COMMENTS.removesuffix("/comments"))
        assert answer.status_code == 200
        with pytest.raises(ValueError, match=r"Expecting value|Unterminated|delimiter"):
            answer.json()


async def test_c011_a_stale_listing_and_count() -> None:
    world = make_world(
        f.Rule(f.StaleListing(30), path="**/comments", method="GET"), f.Rule(f.StaleCount(30), path="**/128")
    )
    issue = "/repos/acme/app/issues/128"
    async with serve(world) as client:
        await post(client)
        assert [len((await client.get(COMMENTS)).json()) for _ in range(2)] == [0, 1]
        assert [(await client.get(issue)).json()["comments"] for _ in range(2)] == [0, 1]


async def test_faults_and_changes_are_set_from_outside() -> None:
    world = make_world()
    async with serve(world) as client:
        rule = {"fault": {"kind": "status_before", "status": 503}, "method": "POST"}
        assert (await client.post("/_world/faults", json=[rule])).json() == [rule]
        assert (await post(client)).status_code == 503
        assert (await client.delete("/_world/faults")).json() == []
        change = {
            "action": "add_comment",
            "arguments": {"repo": "acme/app", "number": 128, "body": "b", "author": "eve"},
        }
        state = (await client.post("/_world/change", json=change)).json()
        assert state["repos"]["acme/app"]["128"]["comments"][0]["author"]["login"] == "eve"
        await post(client, "agent-operation:k mine")
        assert (await client.get("/_world/state")).json()["requests"] == 2
        assert [entry["text"] for entry in (await client.get("/_world/effects?key=k")).json()] == [
            "agent-operation:k mine"
        ]
        log = (await client.get("/_world/log?after=2")).json()
        assert [entry["what"] for entry in log] == ["applied", "received", "applied", "replied"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/_world/faults", {"fault": {"kind": "nonsense"}}, "nonsense"),
        ("/_world/faults", {"fault": {"kind": "delay"}}, "seconds"),
        ("/_world/change", {"action": "handle"}, "is no change"),
        ("/_world/change", {"action": "delete_comment", "arguments": {"comment_id": 1}}, "no comment 1"),
    ],
)
async def test_a_wrong_control_request_is_told_what_is_wrong(path: str, body: object, message: str) -> None:
    async with serve(make_world()) as client:
        answer = await client.post(path, json=body)
        assert answer.status_code == 400 and message in answer.json()["message"]


async def test_the_log_file_holds_each_entry_as_soon_as_it_happened(tmp_path: Path) -> None:
    world = make_world(f.Rule(f.LostReply("hang"), method="POST"))
    path = tmp_path / "world.jsonl"
    async with serve(world, log_file=path) as client:
        task = asyncio.create_task(post(client))
        await until(world, 1)
        entries = read_log(path)
        assert entries == world.log
        assert any(isinstance(entry, Applied) for entry in entries)
        task.cancel()
    with path.open("ab") as file:
        file.write(b'{"what":"rec')
    assert read_log(path) == world.log
