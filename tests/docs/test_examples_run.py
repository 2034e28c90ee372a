"""The files of examples/ do what the documents say of them: on doubles, with messages that are lost."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from surefoot import Agent, Surefoot, Tool, errors
from surefoot.testing.faults import LostReply, Rule
from surefoot.testing.model import FakeModel
from surefoot.testing.world import TOKEN as WORLD_TOKEN, World
from surefoot.testing.world_server import WorldServer
from tests.docs.billing import TOKEN, Billing
from tests.docs.test_examples import ROOT, blocks_of

COMMENT = {"repo": "acme/app", "issue_number": 128, "body": "Two things to look at."}
SECONDS_MAX = 30.0


def load(name: str) -> ModuleType:
    """An example, imported as a file of its own."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(store_url: str) -> str:
    return store_url


def test_the_reviewer_of_the_readme_is_the_example() -> None:
    example = ast.parse((ROOT / "examples" / "reviewer.py").read_text(encoding="utf-8"))
    code = [node for node in example.body if not isinstance(node, ast.Expr)]
    shown = next(block.code for block in blocks_of(ROOT / "README.md") if "reviewer = Agent(" in block.code)
    assert ast.dump(ast.Module(code, [])) == ast.dump(ast.Module(ast.parse(shown).body, []))


async def test_the_reviewer_posts_one_comment_though_the_reply_is_lost(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(rules=[Rule(LostReply(), method="POST", path="/repos/*/*/issues/*/comments", times=1)])
    world.add_pull("acme/app", 128, title="Handle None", body="It crashed.")
    reviewer: Agent = load("reviewer").reviewer
    reviewer.model = FakeModel(
        [
            [("read_pull_request", {"repo": "acme/app", "number": 128})],
            [("create_issue_comment", COMMENT)],
            "The review is posted.",
        ]
    )
    async with WorldServer(world) as url, Surefoot(store, agents=[reviewer], worker=True) as sf:
        monkeypatch.setenv("GITHUB_API_URL", url)
        monkeypatch.setenv("GITHUB_TOKEN", WORLD_TOKEN)
        run = await sf.start("reviewer", "Review acme/app#128")
        asked = await sf.wait(run.id, timeout=SECONDS_MAX)
        assert world.requests("POST", "/repos/*/*/issues/*/comments") == [], "nothing is sent before the approval"
        await sf.approve(asked.pending_actions[0].id, by="anna")
        done = await sf.wait(run.id, timeout=SECONDS_MAX)
    (step,) = [s for s in done.steps if s.tool_name == "create_issue_comment"]
    (made,) = world.effects(step.operation_key or "")
    assert (done.status, step.status, step.attempt) == ("completed", "succeeded", 1)
    assert step.external_resource_id == str(made.resource_id)


@pytest.mark.parametrize(
    ("faults", "posts"),
    [
        ({}, 1),
        ({"lost_replies": 1}, 1),
        ({"lost_requests": 1}, 2),
        ({"lost_replies": 1, "refused_looks": 1}, 1),
    ],
    ids=["nothing is lost", "the reply is lost", "the request is lost", "the reply is lost and one look fails"],
)
async def test_one_invoice_for_one_key(
    faults: dict[str, int], posts: int, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = Billing(**faults)
    send_invoice: Tool = load("billing").send_invoice.using(settle=0.2)
    async with billing.server() as url, Surefoot(store) as sf:
        monkeypatch.setenv("BILLING_URL", url)
        monkeypatch.setenv("BILLING_TOKEN", TOKEN)
        call = send_invoice.call(invoice_id="81", amount_cents=900)
        first = await sf.perform(call, key="81", timeout=SECONDS_MAX)
        again = await sf.perform(call, key="81", timeout=SECONDS_MAX)
    assert first.resource_id == again.resource_id == "inv_1"
    assert (len(billing.invoices), billing.posts) == (1, posts)


async def test_a_large_invoice_waits_for_a_person(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    billing, send_invoice = Billing(), load("billing").send_invoice
    async with billing.server() as url, Surefoot(store) as sf:
        monkeypatch.setenv("BILLING_URL", url)
        monkeypatch.setenv("BILLING_TOKEN", TOKEN)
        call = send_invoice.call(invoice_id="82", amount_cents=10_000)
        with pytest.raises(errors.ApprovalPending) as waiting:
            await sf.perform(call, key="82", timeout=SECONDS_MAX)
        assert billing.posts == 0
        await sf.approve(str(waiting.value.details["action_id"]), by="anna")
        receipt = await sf.perform(call, key="82", timeout=SECONDS_MAX)
    assert receipt.resource_id == "inv_1"


async def test_the_clerk_sends_each_invoice_once(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    billing, clerk = Billing(lost_replies=1), load("billing").clerk
    order = {"invoice_id": "83", "amount_cents": 900}
    clerk.model = FakeModel([[("send_invoice", order)], "Sent."])
    async with billing.server() as url, Surefoot(store, agents=[clerk], worker=True) as sf:
        monkeypatch.setenv("BILLING_URL", url)
        monkeypatch.setenv("BILLING_TOKEN", TOKEN)
        run = await sf.start("clerk", "Send invoice 83")
        done = await sf.wait(run.id, timeout=SECONDS_MAX)
    assert (done.status, billing.posts, len(billing.invoices)) == ("completed", 1, 1)


@pytest.mark.sqlite_only("the script names a file of its own")
async def test_the_script_says_which_command_approves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BILLING_TOKEN", TOKEN)
    billing, example = Billing(), load("billing")
    async with billing.server() as url:
        monkeypatch.setenv("BILLING_URL", url)
        await example.main("84", 20_000)
        assert "actions approve act_" in capsys.readouterr().out
        await example.main("85", 900)
    assert capsys.readouterr().out.startswith("inv_1 https://billing.example.com/inv_1")
