"""http.post against a service that keeps Idempotency-Keys and is not ours: emulate's Resend, for 24 hours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from surefoot import Agent, Surefoot
from surefoot.agent.tools import Tool
from surefoot.connectors import http
from surefoot.errors import PerformFailed
from surefoot.snapshot import RunSnapshot
from surefoot.testing.model import FakeModel
from tests.cases.rig import SECRET, calls_of
from tests.foreign.proxy import Mishap, Proxy, Trap
from tests.foreign.service import Emulate
from tests.places import Place

pytestmark = pytest.mark.foreign

HEADERS = {"Authorization": "Bearer re_test"}
ARGUMENTS: dict[str, object] = {"to": "ann@example.com", "subject": "Hello", "text": "Hi."}


def email(to: str, subject: str, text: str) -> dict[str, object]:
    """Send an email."""
    return {"from": "us@example.com", "to": [to], "subject": subject, "text": text}


def send_email(url: str) -> Tool:
    """Resend's POST /emails; another body under a known key gets 409 there."""
    return http.post(
        "send_email", url=f"{url}/emails", parameters=email, key_lifetime=86_400, credential="RESEND_API_KEY",
        still_running=(), other_payload=(409,), timeout=1.5,
    )  # fmt: skip


@pytest.fixture
async def resend(emulate: Emulate, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Proxy, str]]:
    monkeypatch.setenv("RESEND_API_KEY", "re_test")
    proxy = Proxy(emulate.resend)
    async with proxy as url:
        yield proxy, url


def emails(emulate: Emulate, subject: str) -> int:
    """How many the service holds."""
    reply = httpx.get(f"{emulate.resend}/emails", headers=HEADERS, timeout=10.0).raise_for_status().json()
    return sum(1 for one in reply["data"] if one["subject"] == subject)


async def play(place: Place, url: str, subject: str) -> RunSnapshot:
    """One email in one run."""
    model = FakeModel([[("send_email", {**ARGUMENTS, "subject": subject})], "done"])
    agent = Agent(name="worker", model=model, instructions="Do it.", tools=[send_email(url)])
    async with Surefoot(place.url, [agent], worker=True, secret=SECRET, log=lambda line: None) as sf:
        return await sf.wait((await sf.start("worker", "Do it.")).id, timeout=40)


@pytest.mark.parametrize("mishap", ["lost_reply", "502_after", "hang_after", "lost_request", "502_before", "late"])
async def test_the_same_key_goes_out_again_and_there_is_one_email(
    place: Place, emulate: Emulate, resend: tuple[Proxy, str], mishap: Mishap
) -> None:
    proxy, url = resend
    proxy.traps.append(Trap("POST", "/emails", mishap))
    # The service is one for the tests on both stores.
    subject = f"Hello {mishap} {place.url.partition(':')[0]}"
    run = await play(place, url, subject)
    await proxy.settle()
    (step,) = calls_of(run)
    assert (run.status, step.status, step.attempt) == ("completed", "succeeded", 2)
    assert emails(emulate, subject) == 1
    sent = httpx.get(f"{emulate.resend}/emails/{step.external_resource_id}", headers=HEADERS, timeout=10.0)
    assert sent.json()["subject"] == subject, "the id is that of the one email"


async def test_another_body_under_the_key_is_refused(place: Place, emulate: Emulate, resend: tuple[Proxy, str]) -> None:
    """As where two programs use one business key for different things: nothing is sent, and the caller is told."""
    _, url = resend
    body = json.dumps({"from": "us@example.com", "to": ["bob@example.com"], "subject": "First", "text": "x"})
    taken = {**HEADERS, "Idempotency-Key": "send_email:mail-81", "Content-Type": "application/json"}
    httpx.post(f"{emulate.resend}/emails", headers=taken, content=body, timeout=10.0).raise_for_status()
    async with Surefoot(
        place.url, [], tools=[send_email(url)], worker=True, secret=SECRET, log=lambda line: None
    ) as sf:
        call = send_email(url).call(**{**ARGUMENTS, "subject": "Second"})
        with pytest.raises(PerformFailed):
            await sf.perform(call, key="mail-81")
    assert emails(emulate, "Second") == 0
