"""`surefoot serve` as a process: a whole story, and a stop that ends streams and lets the worker finish."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from surefoot import Surefoot
from surefoot.errors import StoreUnavailable
from surefoot.server.callers import Loopback
from surefoot.server.factory import create_app
from surefoot.server.running import Running, listen
from tests.cli.rig import Cli
from tests.identity.test_announce import receiving
from tests.places import Place
from tests.server.rig import Served, serving
from tests.server.watching import Connection, Follower
from tests.support import eventually, eventually_sync


def test_a_story_is_started_watched_approved_and_read_again_by_the_command_line(place: Place) -> None:
    with serving(place) as web:
        made = web.start("writer", key='"first"')
        assert made.status == 201
        run_id = str(made.record()["id"])
        assert made.headers["location"] == f"/v1/runs/{run_id}"
        again = web.start("writer", key="first")
        assert (again.status, again.record()["id"]) == (200, run_id)
        assert web.decide(web.question(run_id), "approve").status == 200
        web.until(run_id, "completed")
        snapshot = web.get(f"/v1/runs/{run_id}").record()
        page = web.get(f"/v1/runs/{run_id}/events").record()
    assert snapshot == Cli(place).json("runs", "show", run_id).record()
    assert page["ended"] is True and page["next_after"] == snapshot["last_event_sequence"]
    assert len(Cli(place).sent) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"SUREFOOT_ANNOUNCE_URL": "http://127.0.0.1:1/its-secret-path"},
        {"SUREFOOT_ANNOUNCE_URL": "its-secret-path", "SUREFOOT_ANNOUNCE_SECRET": "x" * 32},
        {"SUREFOOT_PUBLIC_URL": "agents.example"},
        {"SUREFOOT_TOKENS": "anna read its-secret-path"},
        {"SUREFOOT_TOKENS": ";"},
        {"SUREFOOT_EVIDENCE_SECRET": "whsec_"},
        {"SUREFOOT_EVIDENCE_SECRET": "a secret that is long enough, short"},
        {"SUREFOOT_EVIDENCE_SECRET": "whsec_its-secret-path-is-not-base64"},
        {"SUREFOOT_GITHUB_WEBHOOK_SECRET": "its-secret-path"},
    ],
)
def test_settings_of_the_service_that_cannot_be_used_are_told(place: Place, settings: dict[str, str]) -> None:
    refused = Cli(place).process("serve", "agents.py", "--port", "0", "--json", more=settings)
    assert (refused.code, refused.error) == (2, "bad_setting")
    assert "its-secret-path" not in refused.out + refused.err


def test_an_announced_link_leads_to_the_server_where_nothing_says_how_people_reach_it(place: Place) -> None:
    with receiving() as hook:
        told = {"SUREFOOT_ANNOUNCE_URL": hook.url, "SUREFOOT_ANNOUNCE_SECRET": "x" * 32}
        with serving(place, more=told) as web:
            web.asked("writer")
            (first, *_) = eventually_sync(lambda: hook.told, "the announcement")
            link = json.loads(first.body)["data"]["url"]
            assert link.startswith(f"{web.url}/links/")
            assert web.get(link.removeprefix(web.url)).status == 200
            _, said = web.end()
    assert f"announced links lead to {web.url}: SUREFOOT_PUBLIC_URL says" in said


async def test_a_stop_ends_streams_lets_the_worker_finish_and_tells_so(place: Place) -> None:
    with serving(place) as web:
        run_id, _ = web.asked("writer")
        under_way = str(web.start("gatekeeper").record()["id"])
        eventually_sync(lambda: len(sent(place.folder)) == 1, "the call to begin")
        follower = Follower(run_id)
        following = asyncio.ensure_future(follower.connect(web.url))
        reader = await Connection.open(web.url, run_id)
        await eventually(lambda: follower.connections or following.done(), "the stream to begin")
        ending = asyncio.ensure_future(asyncio.to_thread(web.end))
        await reader.rest()
        await following
        assert follower.types[-1] == "run_status_changed" and not follower.over
        (place.folder / "gate").touch()
        code, said = await ending
    assert code == 0 and "worker stopped (told)" in said
    shown = await asyncio.to_thread(Cli(place).process, "runs", "show", under_way, "--json")
    steps = shown.record()["steps"]
    assert isinstance(steps, list) and steps[1]["status"] == "succeeded", "the call under way was written down"


def sent(folder: Path) -> list[str]:
    """What the tools wrote."""
    file = folder / "sent.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_other_machines_are_not_served_without_tokens(place: Place) -> None:
    refused = Cli(place).process("serve", "agents.py", "--host", "0.0.0.0", "--port", "0", "--json")
    assert (refused.code, refused.error) == (2, "tokens_needed")


async def test_a_server_that_cannot_start_says_why(place: Place) -> None:
    class TwoTenants(Loopback):
        def tenants(self) -> Iterable[str]:
            return ("default", "second")

    def gone(tenant: str) -> Surefoot:
        raise StoreUnavailable(f"the store of {tenant} is gone")

    async with Surefoot(place.url) as sf:
        app = create_app(sf, TwoTenants("default", "me"), open_tenant=gone)
        with pytest.raises(StoreUnavailable, match="second is gone"):
            await Running(app, listen("127.0.0.1", 0)).serve()


async def test_whoever_is_told_the_address_may_come_before_the_app_is_ready(place: Place) -> None:
    sock = listen("127.0.0.1", 0)
    early = socket.create_connection(sock.getsockname(), timeout=5.0)
    early.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    async with Surefoot(place.url) as sf:
        running = Running(create_app(sf, Loopback("default", "me")), sock)
        serving = asyncio.ensure_future(running.serve())
        answer = await asyncio.to_thread(early.recv, 100)
        running.stop()
        await serving
    early.close()
    assert answer.startswith(b"HTTP/1.1 200")


HANGS = '''
import threading

from surefoot import Agent, Operation, Receipt, effects, tool
from surefoot.testing.model import FakeModel


@tool(effect=effects.opaque, timeout=0.3)
def hang(op: Operation) -> Receipt:
    """Never end."""
    threading.Event().wait()
    raise AssertionError


hanger = Agent("hanger", FakeModel([[("hang", {})], "Done."]), tools=[hang])
'''


@pytest.mark.parametrize("tenant", ["default", "acme"])
def test_a_call_that_does_not_end_has_the_process_replaced_whichever_tenants_it_is(place: Place, tenant: str) -> None:
    cli, token = Cli(place), "a" * 40
    (place.folder / "hangs.py").write_text(HANGS)
    served = Served(cli, more={"SUREFOOT_TOKENS": f"{tenant}/anna admin {token}"}, file="hangs.py")
    try:
        headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {token}"}
        begun = served.ask("POST", "/v1/runs", {"agent": "hanger", "input": "Go"}, headers=headers)
        assert begun.status == 201

        def began() -> int:
            return served.log.read_text().count("serving http")

        eventually_sync(lambda: began() == 2, "the process to be replaced", seconds_max=60)
    finally:
        served.kill()
