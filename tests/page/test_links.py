"""Links to one question in a real browser: following one shows, only the form decides, and each says how it stands."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.page.browsing import PHONE, Visitors, button, check_accessible, check_nothing_ran, check_width, token_of
from tests.page.stage import Stage
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
WORDS = {
    "en-GB": ("Approve", "Reject", "Approved", "Reason (optional)"),
    "zh-CN": ("批准", "拒绝", "已批准", "理由（可选）"),
}


def link_of(stage: Stage, action_id: str, *words: str) -> str:
    """The path of a link, as the command line makes it, without the slash that it begins with."""
    made = stage.cli.process("actions", "link", action_id, "--public-url", stage.url, *words, "--json")
    assert made.code == 0, made
    return urlsplit(str(made.record()["url"])).path.removeprefix("/")


def standing(stage: Stage, action_id: str) -> object:
    return stage.action(action_id)["status"]


async def judged(page: Page) -> None:
    await check_accessible(page)
    await check_width(page)
    await check_nothing_ran(page)


@pytest.mark.parametrize("language", list(WORDS))
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_a_link_shows_and_its_form_decides_on_a_phone_in_both_languages(
    stage: Stage, visitors: Visitors, language: str, theme: Literal["light", "dark"]
) -> None:
    approve, reject, approved, reason = WORDS[language]
    run_id, action_id = stage.asked("sly")
    path = link_of(stage, action_id, "--for", "anna")
    phone = await visitors.context(size=PHONE, language=language, theme=theme)
    page = await visitors.page(stage, path, phone)
    await expect(page.locator("html")).to_have_attribute("lang", language.replace("en-GB", "en"))
    await expect(page.locator("main")).to_contain_text(str(stage.action(action_id)["input_hash"]))
    await expect(page.locator("main")).to_contain_text("U+202E")
    await expect(page.locator("main")).to_contain_text("anna")
    await expect(button(page, reject)).to_be_visible()
    await judged(page)
    assert standing(stage, action_id) == "waiting", "looking decides nothing"
    await page.get_by_label(reason).fill("looks right")
    await button(page, approve).click()
    await expect(page.locator("main")).to_contain_text(approved)
    await expect(page.locator("main")).to_contain_text("anna")
    await judged(page)
    stage.served.until(run_id, "completed")
    decided = stage.action(action_id)
    assert (decided["decision"], decided["decided_by"], decided["reason"]) == ("approve", "anna", "looks right")
    assert str(decided["decided_from"]).startswith("a link, from ")
    # Followed again, it says what was decided.
    again = await visitors.page(stage, path, phone)
    await expect(again.locator("main")).to_contain_text(approved)
    await expect(button(again, approve)).to_have_count(0)
    await judged(again)


async def test_scanners_and_previews_change_nothing(stage: Stage, visitors: Visitors) -> None:
    _, action_id = stage.asked("writer")
    path = "/" + link_of(stage, action_id, "--for", "anna")
    for method in ("HEAD", "GET", "HEAD", "GET"):
        answer = stage.served.ask(method, path, headers={"User-Agent": "Slackbot-LinkExpanding 1.0"})
        assert answer.status == 200 and (method == "GET" or answer.body == b"")
        assert answer.headers["x-robots-tag"] == "noindex, nofollow" and answer.headers["cache-control"] == "no-store"
    for method in ("OPTIONS", "PUT", "DELETE", "PATCH"):
        assert stage.served.ask(method, path).status == 405
    for media in ("application/json", "text/plain"):
        sent = {"Origin": stage.url, "Content-Type": media}
        assert stage.served.ask("POST", path, raw=b"decision=approve", headers=sent).status == 415
    assert standing(stage, action_id) == "waiting"
    page = await visitors.page(stage, path.removeprefix("/"))
    await button(page, "Reject").click()
    await expect(page.locator("main")).to_contain_text("Rejected")
    assert standing(stage, action_id) == "rejected"


async def test_a_link_whose_question_somebody_else_decides_says_so(stage: Stage, visitors: Visitors) -> None:
    _, action_id = stage.asked("writer")
    page = await visitors.page(stage, link_of(stage, action_id, "--for", "anna"))
    assert stage.served.decide(action_id, "reject", reason="no").status == 200
    by = str(stage.action(action_id)["decided_by"])
    await button(page, "Approve").click()
    await expect(page.locator("main")).to_contain_text(f"Rejected, by {by}")
    await judged(page)


async def test_a_link_that_is_over_or_changed_says_so(stage: Stage, visitors: Visitors) -> None:
    _, action_id = stage.asked("writer")
    path = link_of(stage, action_id, "--for", "anna", "--hours", "0.0005")
    page = await visitors.page(stage, path)
    await eventually(lambda: stage.served.get(f"/{path}").status == 410, "the link's end")
    await page.reload()
    await expect(page.locator("main")).to_contain_text("This link is over")
    await judged(page)
    changed = await visitors.page(stage, path[:-1] + ("0" if path[-1] != "0" else "1"))
    await expect(changed.locator("main")).to_contain_text("not one of this server's")
    await judged(changed)
    assert standing(stage, action_id) == "waiting"
    stage.served.decide(action_id, "reject")


async def test_a_link_for_nobody_asks_who_it_is(guarded: Stage, visitors: Visitors) -> None:
    admin = {"Authorization": f"Bearer {token_of('ada')}"}
    body = {"agent": "writer", "input": "Go"}
    made = guarded.served.ask("POST", "/v1/runs", body, headers={**admin, "Idempotency-Key": "linked"})
    run_id = str(made.record()["id"])
    waiting: list[dict[str, object]] = []
    while not waiting:
        path = f"/v1/pending-actions?status=waiting&run_id={run_id}"
        waiting = guarded.served.ask("GET", path, headers=admin).items()
    action_id = str(waiting[0]["id"])
    link = link_of(guarded, action_id)
    page = await visitors.page(guarded, link)
    await expect(page.locator("main")).to_contain_text("Log in to see this question")
    assert str(waiting[0]["input_hash"]) not in await page.content(), "who holds the link is shown nothing"
    await judged(page)
    await page.get_by_label("Your token").fill(token_of("eve"))
    await button(page, "Log in").click()
    await expect(page.locator("main")).to_contain_text("eve may not decide about this")
    await expect(button(page, "Approve")).to_have_count(0)
    other = await visitors.page(guarded, link)
    await other.get_by_label("Your token").fill(token_of("ada"))
    await button(other, "Log in").click()
    await expect(other.locator("main")).to_contain_text("You decide as ada")
    await button(other, "Approve").click()
    await expect(other.locator("main")).to_contain_text("Approved, by ada")
    decided = guarded.served.ask("GET", f"/v1/pending-actions/{action_id}", headers=admin).record()
    assert (decided["decision"], decided["decided_by"]) == ("approve", "ada")
