"""A row that cannot be read is shown as one, above the others, which a person still decides about."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.page.browsing import Visitors, button, check_accessible, check_width
from tests.page.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_cannot_be_read_is_named_and_the_others_are_decided(own_stage: Stage, visitors: Visitors) -> None:
    stage = own_stage
    (damaged, hidden), (run_id, action_id) = stage.asked("reviewer"), stage.asked("reviewer")
    limits = next(row["limits"] for row in stage.cli.place.contents()["run"] if row["id"] == damaged)
    assert stage.cli.place.execute("UPDATE run SET limits = '{' WHERE id = ?", damaged)
    assert stage.cli.place.execute("UPDATE pending_action SET preview = '{' WHERE id = ?", hidden)
    page = await visitors.page(stage)
    told = page.locator(".unreadable")
    await expect(told).to_contain_text(damaged)
    await expect(told).to_contain_text("surefoot doctor")
    await expect(page.locator("ul.runs > li")).to_have_count(1)
    await check_accessible(page)
    await check_width(page)
    await page.goto(f"{stage.url}/#/runs/{damaged}")
    await expect(page.locator(".problem")).to_contain_text("cannot be read")
    await page.goto(f"{stage.url}/#/inbox")
    await expect(told).to_contain_text(hidden)
    await expect(page.locator("ul.waiting > li")).to_have_count(1)
    await expect(page.locator(".badge")).to_have_text("1")
    await check_accessible(page)
    await page.locator(f"a[href='#/inbox/{action_id}']").click()
    await button(page.locator(".action"), "Approve").click()
    stage.served.until(run_id, "completed")
    assert stage.cli.place.execute("UPDATE run SET limits = ? WHERE id = ?", limits, damaged)
    await page.goto(f"{stage.url}/#/runs")
    await expect(page.locator("ul.runs > li")).to_have_count(2)
    await expect(told).to_have_count(0)
    # What the browser itself says of the damaged run's own page.
    visitors.wrong[:] = [said for said in visitors.wrong if "status of 500" not in said]
