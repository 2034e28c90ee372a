"""The page for everybody: what axe finds, keyboard alone, a phone's width, Chinese, both themes; logging in."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from tests.page.browsing import PHONE, Visitors, button, card, check_accessible, check_width, token_of
from tests.page.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

READY = {
    "": ".run",
    "#/inbox": ".waiting-one",
    "#/runs/{approve}": ".call",
    "#/runs/{over}": ".timeline",
    "#/runs/{doubt}": ".call",
    "#/inbox/{approve_action}": ".facts a",
    "#/inbox/{resolve_action}": ".facts a",
    "#/inbox/{ask_action}": ".facts a",
    "#/inbox/{duplicate_action}": ".effects",
    "#/inbox/{sly_action}": ".warnings",
    "#/nowhere": "h1",
}


@cache
def everything(stage: Stage) -> dict[str, str]:
    """Every kind of page, with what it shows once it is there: nobody decides about any of it."""
    ids: dict[str, str] = {"over": stage.start("chooser"), "doubt": stage.start("shipper")}
    for name, agent in {
        "approve": "reviewer", "resolve": "shouter", "ask": "planner", "duplicate": "mailer", "sly": "sly",
    }.items():  # fmt: skip
        ids[name], ids[f"{name}_action"] = stage.asked(agent)
    stage.served.ask("POST", f"/v1/runs/{ids['over']}/cancel")
    return {place.format(**ids): ready for place, ready in READY.items()}


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing(stage: Stage, visitors: Visitors, theme: Literal["light", "dark"]) -> None:
    page = await visitors.page(stage, context=await visitors.context(theme=theme))
    for place, ready in everything(stage).items():
        await page.goto(f"{stage.url}/{place}")
        await page.locator(ready).first.wait_for()
        await check_accessible(page)
    await page.goto(f"{stage.url}/")
    await button(page, "Start a run").click()
    await page.get_by_role("dialog").wait_for()
    await check_accessible(page)


@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
async def test_nothing_scrolls_sideways_on_a_phone(stage: Stage, visitors: Visitors, language: str) -> None:
    page = await visitors.page(stage, context=await visitors.context(size=PHONE, language=language))
    for place, ready in everything(stage).items():
        await page.goto(f"{stage.url}/{place}")
        await page.locator(ready).first.wait_for()
        await check_width(page)
        for summary in await page.locator("main summary:visible").all():
            await summary.click()
        await check_width(page)
    await page.goto(f"{stage.url}/#/inbox")
    await page.locator(".waiting-one").first.click()
    await page.locator(".action").wait_for()
    await page.locator(".back a").click()
    await page.locator(".waiting-one").first.wait_for()


async def test_the_page_speaks_chinese_to_whoever_asks_for_it(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("reviewer")
    page = await visitors.page(stage, f"#/runs/{run_id}", context=await visitors.context(language="zh-CN"))
    assert await page.locator("html").get_attribute("lang") == "zh-CN"
    await expect(page.locator(".run-head .chip")).to_have_text("等待您的确认")
    await expect(page.locator(".next-line")).to_contain_text("等待人工处理")
    await button(card(page, action_id), "批准").click()
    await expect(page.locator(".run-head .chip")).to_have_text("已完成")
    await expect(page.locator(".events")).to_contain_text("正在 GitHub 上发表评论（第 1 次）")
    await expect(page.locator(".events")).to_contain_text("运行已完成")
    words = await page.locator("#top, .run-head, .title-line, h2, h4, button, summary").all_inner_texts()
    shown = re.sub(r"surefoot|reviewer|English|run_\w+|root|ada|body|JSON|[a-z_]+_[a-z_]+", "", " ".join(words))
    assert not re.search(r"[A-Za-z]{4,}", shown), f"English on the Chinese page: {shown}"


async def test_the_language_is_switched_and_kept(stage: Stage, visitors: Visitors) -> None:
    page = await visitors.page(stage, "#/inbox")
    await page.get_by_role("button", name="中文").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("待处理")
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("待处理")
    assert page.url.endswith("#/inbox")
    await page.get_by_role("button", name="English").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")


FOCUS = """(() => {
  const { activeElement: element } = document;
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  return [(element.getAttribute("aria-label") ?? element.innerText ?? "").trim(), outlineStyle, outlineWidth];
})()"""


async def press_to(page: Page, key: str, text: str, presses_max: int = 80) -> None:
    """Press a key until the focus is on something with that name, which is seen to have it."""
    for _ in range(presses_max):
        await page.keyboard.press(key)
        found = await page.evaluate(FOCUS)
        if re.fullmatch(text, found[0].replace("\n", " ")):
            assert found[1] == "solid" and float(found[2].removesuffix("px")) >= 2, f"focus is not seen on {text}"
            return
    raise AssertionError(f"{text} cannot be reached with {key}")


async def test_an_approval_takes_no_mouse(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("writer")
    page = await visitors.page(stage)
    await page.locator(".run").first.wait_for()
    await press_to(page, "Tab", "Skip to content")
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
    await press_to(page, "Shift+Tab", r"Inbox.*")
    await page.keyboard.press("Enter")
    await page.locator(f'[href="#/inbox/{action_id}"]').wait_for()
    for _ in range(200):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.hash") == f"#/inbox/{action_id}":
            break
    await page.keyboard.press("Enter")
    await expect(page.locator(".card-title")).to_be_focused()
    await press_to(page, "Tab", "Approve")
    await page.keyboard.press("Enter")
    await expect(card(page, action_id).locator(".outcome")).to_contain_text("Approved, by")
    stage.served.until(run_id, "completed")


async def test_logging_in_and_out(guarded: Stage, visitors: Visitors) -> None:
    page = await visitors.page(guarded, "#/inbox")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    await check_accessible(page)
    await page.get_by_label("Token").fill("not-a-token")
    await button(page, "Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("This token is unknown, revoked or expired.")
    await page.get_by_label("Token").fill(token_of("ada"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
    await expect(page.locator(".who")).to_have_text("ada")
    cookies = await page.context.cookies()
    assert [(each.get("httpOnly"), each.get("sameSite")) for each in cookies] == [(True, "Strict")]
    assert await page.evaluate("document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage })") == "{}"
    await page.reload()
    await button(page, "Log out").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    assert await page.context.cookies() == []
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


async def test_the_session_decides_and_its_end_is_noticed(guarded: Stage, visitors: Visitors) -> None:
    page = await _logged_in(guarded, visitors, "ada")
    await button(page, "Start a run").click()
    await page.get_by_role("dialog").get_by_label("Agent").select_option("writer")
    await page.get_by_role("dialog").get_by_label("What is to be done").fill("Go")
    await button(page.get_by_role("dialog"), "Start").click()
    await button(page.locator(".action"), "Approve").click()
    await expect(page.locator(".action .outcome")).to_contain_text("Approved, by ada")
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    await page.context.clear_cookies()
    await page.goto(f"{guarded.url}/#/runs")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


async def test_who_may_only_read_is_offered_nothing_else(guarded: Stage, visitors: Visitors) -> None:
    page = await _logged_in(guarded, visitors, "ada")
    await button(page, "Start a run").click()
    await page.get_by_role("dialog").get_by_label("Agent").select_option("writer")
    await page.get_by_role("dialog").get_by_label("What is to be done").fill("Go")
    await button(page.get_by_role("dialog"), "Start").click()
    await button(page.locator(".action"), "Approve").wait_for()
    reader = await _logged_in(guarded, visitors, "eve")
    await expect(button(reader, "Start a run")).to_have_count(0)
    await reader.goto(page.url)
    await expect(reader.locator(".action")).to_contain_text("deciding it takes another permission")
    for name in ("Approve", "Reject", "Cancel the run", "Send"):
        await expect(button(reader, name)).to_have_count(0)


async def _logged_in(stage: Stage, visitors: Visitors, name: str) -> Page:
    page = await visitors.page(stage)
    await page.get_by_label("Token").fill(token_of(name))
    await button(page, "Log in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    return page


async def test_the_policy_is_strict_and_every_file_is_local(stage: Stage, visitors: Visitors) -> None:
    page = await visitors.page(stage)
    await page.locator(".run, .empty").first.wait_for()
    loaded = await page.evaluate("performance.getEntriesByType('resource').map(entry => new URL(entry.name).pathname)")
    files = {path for path in loaded if path.startswith("/page/")}
    assert {"/page/app.js", "/page/client.js", "/page/base.css", "/page/vendor/markdown-it.js"} <= files
    for path in ("/", *sorted(files)):
        headers = stage.served.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    document = stage.served.get("/").body.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|https?://", document)
