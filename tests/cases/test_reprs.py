"""Credential objects print no value, and bodies of errors are copied nowhere: C056."""

from __future__ import annotations

import traceback

import msgspec
import pytest

from surefoot import Agent, Operation, Receipt, Surefoot, effects, tool
from surefoot.agent.providers import PydanticAIModel
from surefoot.connectors import github
from surefoot.http import client
from surefoot.testing import faults as f
from surefoot.testing.model_server import ModelServer, ServerCall, ServerFault, ServerStep
from surefoot.testing.world import BOT
from tests.agent.providers import CHAT
from tests.cases.canary import forms
from tests.cases.rig import NUMBER, REPO, Live, calls_of, post_comment

CANARY = "CANARY-2/7f3a9b+c4e2d8==&x y"
KEYRING = "CANARY-KEYRING-0123456789-0123456789-0123456789"


def _hits(text: str, *secrets: str) -> list[str]:
    return [form for secret in secrets for form in forms(secret) if form in text]


async def test_c056_no_object_of_ours_prints_a_secret_into_a_traceback(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, CANARY)
    seen: list[object] = []

    @tool(effect=effects.idempotent(key_lifetime=None), credential="GITHUB_TOKEN")
    async def send(op: Operation) -> Receipt:
        """Send."""
        headers = {"Authorization": f"Bearer {op.secret('GITHUB_TOKEN')}"}
        http = client(op, base_url="http://127.0.0.1:1", headers=headers)
        seen.extend([op, http])
        return Receipt(resource_id="1")

    agent = Agent("reviewer", "openai:gpt-5", tools=[send, github.read_pull_request])
    async with Surefoot(store_url, [agent], secret=KEYRING) as sf:
        await sf.perform(send.call())
        ctx = sf.context
        model = PydanticAIModel(CHAT, ctx.secrets)
        provider = await model._client()
        seen += [sf, ctx, ctx.signer, ctx.secrets, ctx.redactor, ctx.doors, ctx.store, model, provider, agent, send]
        try:
            raise ValueError("forced")
        except ValueError as error:
            shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        await model.aclose()
    text = "".join(shown.format()) + "".join(f"{each!r} {each!s}" for each in seen)
    assert "seen = [" in text and len(seen) > 12
    assert not _hits(text, CANARY, KEYRING)


async def test_c056_what_servers_echo_in_their_errors_is_nowhere(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target echoes its token in body and headers, the provider its key; a person is asked, and the run goes on."""
    monkeypatch.setenv("GITHUB_TOKEN", CANARY)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    live.world.accounts[CANARY] = BOT
    live.fault(f.StatusAfter(500, echo_authorization=True))
    live.fault(f.StatusBefore(500, echo_authorization=True), "GET", times=2)
    live.fault(f.StatusBefore(422, echo_authorization=True), nth=2)
    said = f"{CANARY} is no key {forms(CANARY)}"
    posts = [ServerCall("create_issue_comment", {"repo": REPO, "issue_number": NUMBER, "body": text}) for text in "ab"]
    script = [
        ServerStep(fault=ServerFault(401, {"X-Echo": CANARY}, said)),
        ServerStep(fault=ServerFault(503, {"X-Echo": CANARY}, said)),
        ServerStep(calls=(posts[0],)),
        ServerStep(calls=(posts[1],)),
        ServerStep(fault=ServerFault(400, {"X-Echo": CANARY}, said)),
    ]
    async with ModelServer(script) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        agent = Agent("reviewer", CHAT, "Review.", [post_comment(settle=0.1)])
        async with live.surefoot(agent) as sf:
            run = await sf.wait((await sf.start("reviewer", "go")).id, timeout=30)
            (question,) = run.pending_actions
            await sf.answer(question.id, "try_again", by="ann")
            ended = await sf.wait(run.id, timeout=30)
            told = [ended, await sf.messages(run.id), await sf.actions(), [event async for event in sf.events(run.id)]]
    steps = calls_of(ended)
    assert [step.status for step in steps] == ["succeeded", "failed"] and len(live.posts()) == 2
    assert ended.error_code == "model_refused_request"
    exits = {"API": msgspec.json.encode(told).decode(), "log": "\n".join(live.lines)}
    exits |= {name: held.decode("utf-8", "replace") for name, held in live.place.held().items()}
    assert len(exits) > 2 and len(exits["API"]) > 1_000 and CHAT in exits["log"]
    assert {where: hits for where, text in exits.items() if (hits := _hits(text, CANARY))} == {}
