"""`make screenshots`: the page as people see it, as pictures in build/screenshots, or in the folder that is named."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, async_playwright

from tests.page.browsing import DESK, PHONE
from tests.page.conftest import chromium
from tests.page.stage import Stage, staged
from tests.places import sqlite_place

FOLDER = Path("build/screenshots")
Theme = Literal["light", "dark"]
LOOKS: Mapping[str, tuple[tuple[int, int], str, Theme]] = {
    "light": (DESK, "en-GB", "light"),
    "dark": (DESK, "en-GB", "dark"),
    "chinese": (DESK, "zh-CN", "light"),
    "phone": (PHONE, "en-GB", "light"),
}


def _places(stage: Stage) -> dict[str, tuple[str, str]]:
    """What is photographed: a name, the place, and what is there once it is drawn."""
    run, approval = stage.asked("reviewer", title="acme/app#128")
    for agent in ("writer", "writer", "reviewer"):
        over, question = stage.asked(agent)
        assert stage.served.decide(question, "approve").status == 200
        stage.served.until(over, "completed")
    _, doubt = stage.asked("shouter")
    _, asked = stage.asked("planner")
    _, double = stage.asked("mailer")
    _, sly = stage.asked("sly")
    looking = stage.start("shipper")
    return {
        "runs": ("", ".legend"),
        "run": (f"#/runs/{over}", ".attempts"),
        "waiting": (f"#/runs/{run}", ".facts a"),
        "reconciling": (f"#/runs/{looking}", ".attempts"),
        "inbox": ("#/inbox", ".waiting-one"),
        "approval": (f"#/inbox/{approval}", ".facts a"),
        "hidden-characters": (f"#/inbox/{sly}", ".facts a"),
        "unknown-outcome": (f"#/inbox/{doubt}", ".facts a"),
        "question": (f"#/inbox/{asked}", ".facts a"),
        "duplicate": (f"#/inbox/{double}", ".effects"),
    }


async def _photograph(browser: Browser, stage: Stage, folder: Path) -> None:
    places = _places(stage)
    for look, (size, language, theme) in LOOKS.items():
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]}, locale=language, color_scheme=theme, timezone_id="UTC"
        )
        page = await context.new_page()
        for name, (place, ready) in places.items():
            await page.goto(f"{stage.url}/{place}")
            await page.locator(ready).first.wait_for()
            await page.screenshot(path=folder / f"{look}-{name}.png", full_page=True)
        await context.close()


async def main(folder: Path) -> None:
    """Take all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with sqlite_place() as place, staged(place) as stage:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            await _photograph(browser, stage, folder)
            await browser.close()
    print(f"pictures in {folder}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
