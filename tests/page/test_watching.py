"""People watch on the page: start, live states, texts as they are written, cancel, and a server that is killed."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys

import pytest
from playwright.async_api import Error as PlaywrightError, Route, expect

from tests.page.browsing import Visitors, button, card, shown_events
from tests.page.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_run_is_started_on_the_page_and_watched_to_its_end(stage: Stage, visitors: Visitors) -> None:
    page = await visitors.page(stage)
    await button(page, "Start a run").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Agent").select_option("reviewer")
    await expect(dialog).to_contain_text("read_pull_request, create_issue_comment")
    await dialog.get_by_label("What is to be done").fill("Review acme/app#128")
    await button(dialog, "Start").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("reviewer")
    run_id = page.url.rpartition("/")[2]
    await expect(page.locator(".run-head .chip")).to_have_text("Waiting for your confirmation")
    await expect(page.locator(".next-line")).to_contain_text("waits for a person")
    await expect(page.locator(".item-user")).to_contain_text("Review acme/app#128")
    await button(page.locator(".action"), "Approve").click()
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    await expect(page.locator(".connection")).to_have_text("Over")
    call = page.locator(".call", has_text="create_issue_comment")
    await expect(call.locator(".attempts li")).to_have_count(1)
    await expect(call.locator(".attempts")).to_contain_text("applied")
    await expect(call.locator(".resource a")).to_have_attribute("href", re.compile(r"issuecomment-\d+$"))
    await expect(page.locator(".timeline")).to_contain_text("The review is published as one comment.")
    stored = stage.stored_events(run_id)
    await expect(page.locator(".events-count")).to_have_text(f"{len(stored)} events")
    assert await shown_events(page) == stored
    assert "%" not in await page.locator("body").inner_text()


async def test_a_start_whose_reply_is_lost_makes_one_run(stage: Stage, visitors: Visitors) -> None:
    page = await visitors.page(stage)
    lost: list[bool] = []

    async def lose_the_first_reply(route: Route) -> None:
        if route.request.method != "POST" or lost:
            await route.continue_()
            return
        lost.append(True)
        await route.fetch()
        await route.abort("connectionreset")

    await page.route("**/v1/runs", lose_the_first_reply)
    await button(page, "Start a run").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Agent").select_option("chooser")
    await dialog.get_by_label("What is to be done").fill("Once, please")
    await button(dialog, "Start").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("chooser")
    assert lost
    made = page.url.rpartition("/")[2]
    newest = stage.served.get("/v1/runs?agent=chooser&limit=2").items()
    messages = [stage.served.get(f"/v1/runs/{run['id']}/messages").items()[0]["body"] for run in newest]
    assert newest[0]["id"] == made
    assert [body for body in messages if body == {"text": "Once, please"}] == [{"text": "Once, please"}]


async def test_the_list_is_live_and_can_be_narrowed(stage: Stage, visitors: Visitors) -> None:
    page = await visitors.page(stage)
    run_id, action_id = stage.asked("writer", title="a note for the list")
    row = page.locator(f'a[href="#/runs/{run_id}"]')
    await expect(row).to_contain_text("Waiting for your confirmation")
    await expect(row).to_contain_text("a note for the list")
    assert stage.served.decide(action_id, "approve").status == 200
    await expect(row).to_contain_text("Completed")
    await page.get_by_label("State").select_option("failed")
    await expect(row).to_have_count(0)
    await page.get_by_label("State").select_option("completed")
    await page.get_by_label("Agent").select_option("writer")
    await expect(row).to_have_count(1)
    names = await page.locator(".run strong").all_inner_texts()
    assert set(names) == {"writer"}
    for name in ("Runs begun, by state", "Time to approval", "What lookups answered"):
        await expect(page.locator("figure", has_text=name)).to_be_visible()
    await expect(page.get_by_role("img", name=re.compile(r"\d+ runs began in 24 hours: ")).first).to_be_visible()


async def test_older_runs_come_page_by_page(own_stage: Stage, visitors: Visitors) -> None:
    made = [own_stage.start("chooser") for _ in range(65)]
    page = await visitors.page(own_stage)
    rows = page.locator(".runs li")
    await expect(rows).to_have_count(30)
    await button(page, "Show older runs").click()
    await expect(rows).to_have_count(60)
    await button(page, "Show older runs").click()
    await expect(rows).to_have_count(65)
    await expect(button(page, "Show older runs")).to_be_hidden()
    links = await page.locator(".run").evaluate_all("rows => rows.map(row => row.hash.split('/').pop())")
    assert links == sorted(made, reverse=True)
    newest = own_stage.start("chooser")
    await expect(rows.first.locator("a")).to_have_attribute("href", f"#/runs/{newest}")
    await expect(rows).to_have_count(66)


async def test_a_text_is_read_as_it_is_written_and_its_message_replaces_it(stage: Stage, visitors: Visitors) -> None:
    run_id = stage.start("talker")
    page = await visitors.page(stage, f"#/runs/{run_id}")
    await expect(page.locator(".call")).to_contain_text("Calling pour_concrete")
    await expect(page.locator(".connection")).to_have_text("Live")
    stage.open_gate("poured")
    writing = page.locator(".writing")
    await expect(writing).to_contain_text("Word by word, and the")
    await expect(writing).not_to_contain_text("somebody allows it")
    stage.open_gate("written")
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    stage.close_gate("poured")
    stage.close_gate("written")
    await expect(writing).to_have_count(0)
    answer = page.get_by_text("Word by word, and the rest of it once somebody allows it.", exact=True)
    await expect(answer).to_have_count(1)


async def test_a_cancel_says_which_calls_may_have_been_sent(stage: Stage, visitors: Visitors) -> None:
    run_id = stage.start("builder")
    page = await visitors.page(stage, f"#/runs/{run_id}")
    await expect(page.locator(".call .chip")).to_have_text("Calling pour_concrete")
    await button(page, "Cancel the run").click()
    dialog = page.get_by_role("dialog")
    await button(dialog, "Cancel the run").click()
    await expect(dialog).to_contain_text("Cancelled. Nothing more is sent.")
    await expect(dialog).to_contain_text("These calls may have been sent:")
    await expect(dialog.locator(".sent")).to_contain_text("pour_concrete")
    await expect(dialog.locator(".sent")).to_contain_text(run_id)
    await button(dialog, "Close").click()
    await expect(page.locator(".receipt")).to_contain_text("pour_concrete")
    await expect(page.locator(".run-head .chip")).to_have_text("Cancelled")
    await expect(button(page, "Cancel the run")).to_have_count(0)
    assert "again" not in (await page.locator(".story").inner_text()).lower()


async def test_a_cancel_before_any_call_says_that_nothing_was_sent(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("writer")
    page = await visitors.page(stage, f"#/runs/{run_id}")
    await button(page, "Cancel the run").click()
    await button(page.get_by_role("dialog"), "Cancel the run").click()
    await expect(page.get_by_role("dialog")).to_contain_text("No call had begun: nothing was sent.")
    await expect(page.locator(f'[data-action="{action_id}"] .outcome')).to_contain_text("the run was cancelled")


async def test_while_an_outcome_is_looked_for_nothing_says_that_it_is_sent_again(
    stage: Stage, visitors: Visitors
) -> None:
    run_id = stage.start("shipper")
    page = await visitors.page(stage, f"#/runs/{run_id}")
    await expect(page.locator(".run-head .chip")).to_have_text("Checking what happened")
    await expect(page.locator(".call .chip")).to_have_text("Checking what became of ship")
    await expect(page.locator(".next-line")).to_contain_text("looks again")
    await expect(page.locator(".evidence")).to_contain_text("the carrier does not answer")
    await expect(page.locator(".evidence")).to_contain_text("parcels since noon")
    await expect(page.locator(".attempts")).to_contain_text("in doubt")
    words = (await page.locator("body").inner_text()).lower()
    assert not re.search(r"(post|send|sent|shipp?)\w* again|%", words), words
    stage.served.ask("POST", f"/v1/runs/{run_id}/cancel")


PERFORM = """
import asyncio
import sys
from agents import post_note
from surefoot import Surefoot
from surefoot.errors import ApprovalPending

async def main():
    async with Surefoot(sys.argv[1]) as sf:
        try:
            await sf.perform(post_note.call(text="by a script"), key="note-81")
        except ApprovalPending as pending:
            print(pending)

asyncio.run(main())
"""


async def test_a_call_without_an_agent_is_a_run_of_one_step(own_stage: Stage, visitors: Visitors) -> None:
    words = [sys.executable, "-c", PERFORM, own_stage.cli.place.url]
    told = subprocess.run(words, cwd=own_stage.folder, env=own_stage.cli.environment, capture_output=True)
    assert b"waits for a person" in told.stdout, told
    page = await visitors.page(own_stage)
    row = page.locator(".run", has_text="single call")
    await row.click()
    await button(page.locator(".action"), "Approve").click()
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    await expect(page.locator(".call")).to_contain_text("note-81")
    await expect(page.locator(".result")).to_contain_text('"resource_id": "note-1"')
    await expect(page.locator(".open h2")).to_have_text("What was asked here")
    assert len(own_stage.sent) == 1


async def test_a_message_goes_to_the_run_and_a_conversation_goes_on(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("writer")
    page = await visitors.page(stage, f"#/runs/{run_id}")
    await page.get_by_label("Message to the run").fill("Be brief.")
    await button(page, "Send").click()
    await expect(page.locator(".item-user", has_text="Be brief.")).to_contain_text("waits for its place")
    assert stage.served.decide(action_id, "approve").status == 200
    await expect(button(page, "Go on with this conversation")).to_be_visible()
    await expect(page.locator(".item-user", has_text="Be brief.")).not_to_contain_text("waits for its place")
    await button(page, "Go on with this conversation").click()
    await page.get_by_role("dialog").get_by_label("What is to be done").fill("Thank you.")
    await button(page.get_by_role("dialog"), "Start").click()
    await expect(page.locator(".item-user", has_text="Thank you.")).to_be_visible()
    assert run_id not in page.url
    await expect(page.locator(".item-user", has_text="Be brief.")).to_be_visible()


async def test_a_killed_server_is_come_back_to_and_every_event_is_shown_once(
    own_stage: Stage, visitors: Visitors
) -> None:
    run_id, action_id = own_stage.asked("reviewer")
    page = await visitors.page(own_stage, f"#/runs/{run_id}")
    await expect(page.locator(".connection")).to_have_text("Live")
    before = await shown_events(page)
    assert before
    own_stage.kill()
    await expect(page.locator(".connection")).to_contain_text("The connection is lost")
    await card(page, action_id).get_by_label("Reason").fill("written while nobody was there")
    own_stage.serve_again()
    await expect(page.locator(".connection")).to_have_text("Live")
    await button(card(page, action_id), "Approve").click()
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    stored = own_stage.stored_events(run_id)
    await expect(page.locator(".events-count")).to_have_text(f"{len(stored)} events")
    assert await shown_events(page) == stored == list(range(1, len(stored) + 1))
    assert len(own_stage.comments()) == 1
    assert own_stage.action(action_id)["reason"] == "written while nobody was there"


async def test_a_run_goes_on_behind_a_killed_server_and_no_event_is_lost_or_doubled(
    own_stage: Stage, visitors: Visitors
) -> None:
    run_id = own_stage.start("walker")
    page = await visitors.page(own_stage, f"#/runs/{run_id}")
    await page.locator(".call").nth(9).wait_for()
    for _ in range(2):
        own_stage.kill()
        await expect(page.locator(".connection")).to_contain_text("The connection is lost")
        own_stage.serve_again()
        await expect(page.locator(".connection")).to_have_text("Live")
    own_stage.open_gate("walk")
    await expect(page.locator(".connection")).to_have_text("Over")
    stored = own_stage.stored_events(run_id)
    assert len(stored) > 300
    await expect(page.locator(".events-count")).to_have_text(f"{len(stored)} events")
    assert await shown_events(page) == stored == list(range(1, len(stored) + 1))
    await expect(page.locator(".call")).to_have_count(40)


async def test_a_decision_while_the_server_is_killed_is_recorded_once(own_stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = own_stage.asked("writer")
    page = await visitors.page(own_stage, f"#/inbox/{action_id}")
    await button(card(page, action_id), "Approve").wait_for()
    own_stage.kill()
    await button(card(page, action_id), "Approve").click()
    await expect(card(page, action_id)).to_contain_text("The reply did not come.")
    own_stage.serve_again()
    # The page may come through by itself just now, which takes the button away.
    with contextlib.suppress(PlaywrightError):
        await button(card(page, action_id), "Approve").click(timeout=5_000)
    await expect(card(page, action_id).locator(".outcome")).to_contain_text("Approved, by")
    own_stage.served.until(run_id, "completed")
    assert len(own_stage.sent) == 1
