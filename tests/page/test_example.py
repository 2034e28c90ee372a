"""The example page of examples/javascript, behind its own small proxy, in a real browser."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, expect

from tests.cli.rig import Cli
from tests.page.browsing import button
from tests.page.stage import ROOT
from tests.places import Place
from tests.server.rig import Served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.foreign]  # Node

EXAMPLES = ROOT / "examples"


@pytest.fixture
def served(place: Place) -> Iterator[Served]:
    made = Served(Cli(place), file=str(EXAMPLES / "notes.py"))
    yield made
    made.kill()


@asynccontextmanager
async def proxy(served: Served) -> AsyncIterator[str]:
    """serve.mjs in front of the server: where its page is."""
    node = shutil.which("node")
    assert node, "Node 18 or newer is needed for examples/javascript"
    process = await asyncio.create_subprocess_exec(
        node, str(EXAMPLES / "javascript" / "serve.mjs"), "0",
        env={"SUREFOOT_URL": served.url}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(("answer", "count"), [("Approve", 1), ("Reject", 0)])
async def test_a_page_of_ones_own_starts_watches_and_decides(
    served: Served, browser: Browser, answer: str, count: int
) -> None:
    async with proxy(served) as url:
        page = await browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        await page.goto(url)
        await button(page, "Start").click()
        await expect(page.locator("#state")).to_have_text("Waiting for your confirmation")
        await expect(page.locator("#question pre")).to_contain_text("Milk is out.")
        await button(page, answer).click()
        await expect(page.locator("#state")).to_contain_text("Completed: The note is posted.")
        await expect(page.locator("#question")).to_be_hidden()
        (run,) = served.get("/v1/runs").items()
        shown = await page.locator("#events li").all_inner_texts()
        stored = served.get(f"/v1/runs/{run['id']}/events").items()
        assert shown == [str(event["type"]) for event in stored], "each event once, in order"
        await page.close()
        assert wrong == []
    notes = served.folder / "notes.txt"
    assert (len(notes.read_text().splitlines()) if notes.exists() else 0) == count
