"""What is said about an effect, its id and its link: refused where a person or program says it badly, mended where a
tool does: an effect that has happened is never lost for the looks of its id."""

from __future__ import annotations

import pytest

from surefoot import Found, Operation, Receipt, Surefoot, effects, tool
from surefoot.core.facts import ID_CHARACTERS_MAX, LINK_CHARACTERS_MAX, REASON_CHARACTERS_MAX, check_link, mended
from surefoot.errors import InvalidInput, OutcomeUnknown
from tests.cli.rig import Cli
from tests.places import Place
from tests.server.house import Outside, code_of, house
from tests.server.rig import serving

BAD_IDS = ("", " \t ", "a\x00b", "a\nb", "\x1b[2J", "a\u2028b", "x" * (ID_CHARACTERS_MAX + 1), "x" * 900_000)
BAD_LINKS = (
    "", " ", "x", "javascript:alert(1)", "JAVASCRIPT:alert(1)", "data:text/html,x", "file:///etc/passwd", "//host/x",
    "ftp://host/x", "http://", "https:///x", "http:/x", "https://a b", "https://a\x00", "https://a/\nb", "https://a\\b",
    "https://me:secret@host/", "https://x/" + "a" * LINK_CHARACTERS_MAX, " javascript:alert(1)",
)  # fmt: skip
GOOD_LINKS = (
    "https://a",
    "http://127.0.0.1:8100/x?y#z",
    "HTTPS://Example.COM/ü",
    "http://[::1]:80/",
    "https://例子.cn",
)


def test_links_are_those_that_people_may_follow() -> None:
    for link in GOOD_LINKS:
        assert check_link(f" {link} ", "url") == link
    for link in BAD_LINKS:
        with pytest.raises(InvalidInput) as caught:
            check_link(link, "url")
        assert "https://" in str(caught.value) and len(str(caught.value)) < 300


def test_a_receipt_is_mended_and_keeps_what_it_has() -> None:
    assert mended("note-1", "https://a/1") == ("note-1", "https://a/1")
    assert mended(" ", " ") == (None, None)
    assert mended("note-1", "javascript:alert(1)") == ("note-1", None)
    assert mended(None, "s3://bucket/key") == ("s3://bucket/key", None), "the only thing that names the effect"
    assert mended("a\x00b", None) == ("a\ufffdb", None)
    assert mended("x" * 900_000, "https://a/" + "b" * 900_000) == ("x" * ID_CHARACTERS_MAX, None)


async def test_what_a_person_says_happened_is_checked(place: Place, outside: Outside) -> None:
    shouter = outside.agent("shouter", [("shout", {"text": "hi"})], "Shouted.")
    async with house(place, [shouter]) as at:
        run_id, action_id = await at.asked("shouter")
        wrong: list[dict[str, object]] = [{"external_resource_id": bad} for bad in BAD_IDS]
        wrong += [{"url": bad} for bad in BAD_LINKS]
        wrong += [{"external_resource_id": "good", "url": "javascript:alert(1)"}, {}, {"external_resource_id": None}]
        wrong += [{"external_resource_id": "good", "reason": "x" * (REASON_CHARACTERS_MAX + 1)}]
        for members in wrong:
            refused = await at.decide(action_id, "happened", members)
            assert code_of(refused) == (422, "invalid_input") and len(refused.content) < 1_000, members
        assert (await at.run(run_id))["status"] == "waiting_for_user", "nothing was decided"
        good = await at.decide(action_id, "happened", external_resource_id=" echo ", url="https://echo.example/1")
        assert good.status_code == 200
        run = await at.sf.wait(run_id, timeout=30)
        (step,) = [step for step in run.steps if step.tool_name == "shout"]
        assert (step.external_resource_id, step.evidence[-1].url) == ("echo", "https://echo.example/1")


async def test_evidence_is_checked(place: Place, outside: Outside) -> None:
    shouter = outside.agent("shouter", [("shout", {"text": "hi"})], "Shouted.")
    async with house(place, [shouter]) as at:
        run_id, _ = await at.asked("shouter")
        (step,) = [step for step in (await at.sf.snapshot(run_id)).steps if step.operation_key]
        found: dict[str, object] = {"key": step.operation_key, "verdict": "found"}
        wrong: list[dict[str, object]] = [{**found, "resource_id": bad} for bad in BAD_IDS]
        wrong += [{**found, "url": bad} for bad in BAD_LINKS]
        wrong += [{**found, "key": bad, "resource_id": "echo"} for bad in ("", " ", "k" * 900_000)]
        wrong += [found, {**found, "resource_id": "echo", "reason": "x" * (REASON_CHARACTERS_MAX + 1)}]
        for body in wrong:
            refused = await at.client.post("/v1/evidence", json=body)
            assert code_of(refused) == (422, "invalid_input") and len(refused.content) < 1_000, str(body)[:200]
        run = await at.run(run_id)
        assert run["status"] == "waiting_for_user"
        told = await at.client.post("/v1/evidence", json={**found, "url": "https://echo.example/1"})
        assert told.json() == {"key": step.operation_key, "new": True}


def test_the_command_line_checks_it_too(place: Place) -> None:
    with serving(place) as web:
        cli = Cli(place)
        _, action_id = web.asked("shouter")
        for at in ((), ("--url", web.url)):
            for words in (("--link", "javascript:alert(1)"), ("--id", "  "), ("--id", "x" * 2_000), ("--id", "a\nb")):
                refused = cli.json("actions", "resolve", action_id, "--happened", *words, *at)
                assert (refused.code, refused.error) == (2, "invalid_input"), (words, at)
        done = cli.json("actions", "resolve", action_id, "--happened", "--link", "https://echo.example/1")
        assert done.record()["decision"] == "happened"


async def test_an_effect_is_not_lost_for_the_looks_of_its_id(store_url: str) -> None:
    odd = Receipt(resource_id="a\x00b\n", url="javascript:alert(1)", output="x")

    def find(op: Operation) -> Found:
        return Found(odd, also=(Receipt(resource_id="other", url="file:///x"),))

    @tool(effect=effects.lookup(find, settle=0.05))
    async def odd_one(op: Operation) -> Receipt:
        """Make something with an odd id."""
        return odd

    @tool(effect=effects.lookup(find, settle=0.05))
    async def lost_one(op: Operation) -> Receipt:
        """Make something, and lose the answer."""
        raise effects.InDoubt("lost")

    @tool(effect=effects.opaque)
    async def silent(op: Operation) -> Receipt:
        """Make something, and never know."""
        raise effects.InDoubt("lost")

    async with Surefoot(store_url, tools=[odd_one, lost_one, silent]) as sf:
        for call in (odd_one.call(), lost_one.call()):
            receipt = await sf.perform(call, key="k", timeout=20)
            assert (receipt.resource_id, receipt.url) == ("a\ufffdb", None)
        with pytest.raises(OutcomeUnknown):
            await sf.perform(silent.call(), key="k", timeout=20)
        assert await sf.report("silent:k", Found(odd))
        assert (await sf.perform(silent.call(), key="k", timeout=20)).resource_id == "a\ufffdb"
