"""Pages of a browser, and what is judged on every one of them."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from functools import cache
from importlib.resources import files
from typing import Literal
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Locator, Page, Request, expect

from tests.page.stage import Stage

MILLISECONDS_MAX = 20_000
PHONE = (360, 740)
DESK = (1_280, 900)
# Chromium says so of each answer that is no 2xx; whether it was right is a test's own business.
REFUSED = re.compile(r"Failed to load resource: (the server responded with a status of 4|net::ERR_)")
WATCH = """
window.broken = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.broken.push(event.violatedDirective + " " + event.blockedURI);
});
"""

expect.set_options(timeout=MILLISECONDS_MAX)


class Visitors:
    """Makes pages, each with a context of its own, and judges them at the end of the test."""

    def __init__(self, browser: Browser, stack: AsyncExitStack) -> None:
        self._browser = browser
        self._stack = stack
        self._pages: list[tuple[Page, str]] = []
        self.wrong: list[str] = []

    async def context(
        self,
        *,
        size: tuple[int, int] = DESK,
        language: str = "en-GB",
        theme: Literal["light", "dark"] = "light",
    ) -> BrowserContext:
        """A browser's profile."""
        made = await self._browser.new_context(
            viewport={"width": size[0], "height": size[1]}, locale=language, color_scheme=theme, timezone_id="UTC"
        )
        self._stack.push_async_callback(made.close)
        await made.add_init_script(WATCH)
        made.set_default_timeout(MILLISECONDS_MAX)
        return made

    async def page(self, stage: Stage, place: str = "", context: BrowserContext | None = None) -> Page:
        """A page of the stage's server."""
        page = await (context or await self.context()).new_page()
        origin = urlsplit(stage.url).netloc

        def asked(request: Request) -> None:
            if urlsplit(request.url).netloc != origin:
                self.wrong.append(f"asked elsewhere: {request.url}")

        page.on("request", asked)
        page.on("pageerror", lambda error: self.wrong.append(f"an error: {error}"))
        page.on(
            "console",
            lambda said: (
                self.wrong.append(f"console: {said.text}")
                if said.type in ("error", "warning") and not REFUSED.match(said.text)
                else None
            ),
        )
        self._pages.append((page, stage.url))
        await page.goto(f"{stage.url}/{place}")
        return page

    async def check(self) -> None:
        """Raises AssertionError for what a page of ours never does."""
        for page, url in self._pages:
            if not page.is_closed() and page.url.startswith(url):
                self.wrong += [f"broke the policy: {each}" for each in await page.evaluate("window.broken")]
        assert self.wrong == []


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


async def check_accessible(page: Page) -> None:
    """No violation that axe finds, best practices included."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_axe())
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    said = [
        f"{each['id']}: {each['help']}: {[(node['html'][:200], node['failureSummary']) for node in each['nodes'][:3]]}"
        for each in found["violations"]
    ]
    assert said == [], said


async def check_width(page: Page) -> None:
    """Nothing makes the page scroll sideways."""
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{wide} pixels too wide at {page.url}"


async def check_nothing_ran(page: Page) -> None:
    """No text became a script."""
    assert await page.evaluate("window.attacked") is None


def token_of(name: str) -> str:
    """The token of a person on a server with tokens."""
    return f"{name}-token-0123456789abcdef0123456789"


def card(page: Page, action_id: str) -> Locator:
    """The card of a question."""
    return page.locator(f'[data-action="{action_id}"]')


def button(within: Page | Locator, name: str) -> Locator:
    """A button by its whole name."""
    return within.get_by_role("button", name=name, exact=True)


async def shown_events(page: Page) -> list[int]:
    """The sequences of the events as they stand on the page, also those that are folded away."""
    found = await page.eval_on_selector_all(".events li", "lines => lines.map(line => Number(line.dataset.sequence))")
    assert isinstance(found, list)
    return [int(each) for each in found]
