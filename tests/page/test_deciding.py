"""People decide on the page: approve, reject, every answer to an unknown outcome, questions, duplicates, conflicts."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from tests.page.browsing import Visitors, button, card, check_nothing_ran
from tests.page.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_approval_shows_exactly_what_is_approved_and_that_is_done(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("reviewer")
    page = await visitors.page(stage, "#/inbox")
    await page.locator(f'[href="#/inbox/{action_id}"]').click()
    question = card(page, action_id)
    action = stage.action(action_id)
    await expect(question).to_contain_text(str(action["input_hash"]))
    await expect(question).to_contain_text("reviewer, started by")
    await expect(question).to_contain_text("in 23 h")
    await expect(question.locator("pre").first).to_contain_text("## Review of “Retry only what is safe”")
    rendering = question.locator(".markdown")
    await expect(rendering.locator("table td").nth(1)).to_have_text("+42")
    await expect(rendering.locator("a")).to_have_attribute("href", "https://spec.example/retries")
    await expect(rendering).to_contain_text("(https://spec.example/retries)")
    before = len(stage.comments())
    await question.get_by_label("Reason").fill("it is right")
    await button(question, "Approve").click()
    await expect(question.locator(".outcome")).to_contain_text("Approved, by")
    await expect(question.locator(".outcome")).to_contain_text("it is right")
    stage.served.until(run_id, "completed")
    assert len(stage.comments()) == before + 1
    assert stage.comments()[-1].startswith("## Review of “Retry only what is safe”")
    await expect(page.locator(f'[href="#/inbox/{action_id}"]')).to_have_count(0)


async def test_a_rejection_is_told_to_the_model_with_its_reason(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("writer")
    sent = len(stage.sent)
    page = await visitors.page(stage, f"#/runs/{run_id}")
    question = card(page, action_id)
    await question.get_by_label("Reason").fill("not today")
    await button(question, "Reject").click()
    await expect(question.locator(".outcome")).to_contain_text("Rejected, by")
    await expect(page.locator(".call")).to_contain_text("Not executed: post_note")
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    assert stage.action(action_id)["reason"] == "not today"
    assert len(stage.sent) == sent


async def test_a_decision_whose_reply_is_lost_is_asked_again_and_recorded_once(
    stage: Stage, visitors: Visitors
) -> None:
    run_id, action_id = stage.asked("writer")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    keys: list[str | None] = []

    async def lose_the_first_reply(route: Route) -> None:
        keys.append(await route.request.header_value("idempotency-key"))
        if len(keys) == 1:
            await route.fetch()
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await page.route("**/decision", lose_the_first_reply)
    await button(card(page, action_id), "Approve").click()
    await expect(card(page, action_id).locator(".outcome")).to_contain_text("Approved, by")
    assert len(keys) == 2 and keys[0] == keys[1] and keys[0]
    stage.served.until(run_id, "completed")
    run = stage.run(run_id)
    assert [line for line in stage.sent if run_id in line] == [f"{_key_of(run)} note"]


def _key_of(run: object) -> str:
    assert isinstance(run, dict)
    return str(next(step["operation_key"] for step in run["steps"] if step["tool_name"] == "post_note"))


async def test_whoever_is_second_is_told_what_was_decided(stage: Stage, visitors: Visitors) -> None:
    _, action_id = stage.asked("writer")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    await button(card(page, action_id), "Approve").wait_for()
    # The page does not hear of it before the button is pressed.
    await page.route("**/v1/pending-actions?*", lambda route: route.abort())
    assert stage.served.decide(action_id, "reject", reason="I was faster").status == 200
    await button(card(page, action_id), "Approve").click()
    await expect(page.get_by_role("alert")).to_contain_text("Somebody was faster. What was decided: Rejected, by")
    await expect(card(page, action_id)).to_contain_text("I was faster")
    await expect(button(card(page, action_id), "Approve")).to_have_count(0)


async def test_a_decision_of_somebody_else_is_seen_by_itself(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("writer")
    pages = [await visitors.page(stage, place) for place in (f"#/inbox/{action_id}", f"#/runs/{run_id}")]
    for page in pages:
        await button(card(page, action_id), "Approve").wait_for()
    assert stage.served.decide(action_id, "reject", reason="elsewhere").status == 200
    for page in pages:
        await expect(card(page, action_id).locator(".outcome")).to_contain_text("Rejected, by")
        await expect(card(page, action_id)).to_contain_text("elsewhere")


async def _answer(page: Page, action_id: str, answer: str) -> None:
    question = card(page, action_id)
    await expect(question).to_contain_text("This call may have been sent")
    await question.get_by_role("radio", name=answer).check()
    if answer == "It happened":
        await question.get_by_label("Id of the effect").fill("echo-81")
        await question.get_by_label("Link to the effect").fill("https://hills.example/81")
    await button(question, "Record the answer").click()
    await expect(question.locator(".outcome")).to_contain_text(", by ")


async def test_an_unknown_outcome_that_happened_gets_its_id(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("shouter")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    await _answer(page, action_id, "It happened")
    stage.served.until(run_id, "completed")
    await page.goto(f"{stage.url}/#/runs/{run_id}")
    await expect(page.locator(".call .resource a")).to_have_attribute("href", "https://hills.example/81")
    await expect(page.locator(".call")).to_contain_text("echo-81")
    await expect(page.locator(".evidence")).to_contain_text("person")
    assert len([line for line in stage.sent if run_id in line]) == 1


async def test_an_unknown_outcome_that_did_not_happen_may_start_under_its_key(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("shouter")
    page = await visitors.page(stage, f"#/runs/{run_id}")
    stage.open_gate("heard")
    try:
        await _answer(page, action_id, "It did not happen")
        await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    finally:
        stage.close_gate("heard")
    await expect(page.locator(".attempts li")).to_have_count(2)
    lines = [line for line in stage.sent if run_id in line]
    assert len(lines) == 2 and lines[0] == lines[1], "the same key, the same bytes"


async def test_an_unknown_outcome_can_be_left_unknown(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("shouter")
    page = await visitors.page(stage, f"#/runs/{run_id}")
    await _answer(page, action_id, "It cannot be known")
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    await expect(page.locator(".call")).to_contain_text("The outcome of shout is not known")
    assert len([line for line in stage.sent if run_id in line]) == 1


async def test_a_question_is_a_form_made_from_its_schema(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("planner")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    question = card(page, action_id)
    await expect(question).to_contain_text("When?")
    await question.get_by_label("Day").fill("2027-03-01")
    await question.get_by_label("seats").fill("40")
    await button(question, "Answer").click()
    assert not await question.get_by_label("seats").evaluate("(input) => input.validity.valid")
    await question.get_by_label("seats").fill("4")
    await question.get_by_role("checkbox", name="parking").check()
    await question.get_by_role("radio", name="No").check()
    await button(question, "Answer").click()
    await expect(question.locator(".outcome")).to_contain_text("Answered, by")
    answer = {"when": "2027-03-01", "seats": 4, "extras": ["parking"], "quiet": False}
    assert stage.action(action_id)["answer"] == answer
    stage.served.until(run_id, "completed")


async def test_an_answer_that_does_not_fit_is_refused_and_can_be_mended(stage: Stage, visitors: Visitors) -> None:
    _, action_id = stage.asked("planner")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    question = card(page, action_id)
    await question.get_by_label("Day").fill("2027-03-01")
    seats = question.get_by_label("seats")
    await seats.evaluate("(input) => input.removeAttribute('max')")
    await seats.fill("40")
    await button(question, "Answer").click()
    await expect(question.get_by_role("alert")).to_contain_text("the answer does not fit the question")
    await seats.fill("2")
    await button(question, "Answer").click()
    await expect(question.locator(".outcome")).to_contain_text("Answered, by")


async def test_a_choice_is_made_or_declined(stage: Stage, visitors: Visitors) -> None:
    first, first_id = stage.asked("chooser")
    page = await visitors.page(stage, f"#/inbox/{first_id}")
    await card(page, first_id).get_by_role("radio", name="上海").check()
    await button(card(page, first_id), "Answer").click()
    await expect(card(page, first_id).locator(".outcome")).to_contain_text("上海")
    assert stage.action(first_id)["answer"] == "上海"
    second, second_id = stage.asked("chooser")
    await page.goto(f"{stage.url}/#/inbox/{second_id}")
    await button(card(page, second_id), "Decline to answer").click()
    await expect(card(page, second_id).locator(".outcome")).to_contain_text("Rejected, by")
    stage.served.until(first, "completed")
    stage.served.until(second, "completed")


async def test_a_duplicate_shows_both_effects_with_their_links(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("mailer")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    effects = card(page, action_id).locator(".effects")
    await expect(effects.locator("a")).to_have_count(2)
    for number in (1, 2):
        await expect(effects).to_contain_text(f"mail-{number}")
        link = effects.get_by_role("link", name=f"https://mail.example/{number}")
        await expect(link).to_have_attribute("href", f"https://mail.example/{number}")
    await button(card(page, action_id), "Leave both").click()
    await expect(card(page, action_id).locator(".outcome")).to_contain_text("Rejected, by")
    assert len([line for line in stage.sent if run_id in line]) == 1


async def test_c024_c049_hidden_characters_and_every_digit_are_shown_before_an_approval(
    stage: Stage, visitors: Visitors
) -> None:
    run_id, action_id = stage.asked("payer")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    question = card(page, action_id)
    await expect(question.locator(".arguments")).to_contain_text("9007199254740993")
    await expect(question.locator("pre").first).to_have_text("ok⟦U+200B⟧; rm -rf")
    await question.get_by_text("Everything as JSON").click()
    await expect(question.locator("details pre")).to_contain_text("9007199254740993")
    await button(question, "Approve").click()
    await expect(question.locator(".outcome")).to_be_focused()
    stage.served.until(run_id, "completed")
    assert [line.split()[1] for line in stage.sent if run_id in line] == ["9007199254740993"]


async def test_c049_an_answer_keeps_every_digit(stage: Stage, visitors: Visitors) -> None:
    _, action_id = stage.asked("counter")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    await card(page, action_id).get_by_label("Your answer").fill("9007199254740993")
    await button(card(page, action_id), "Answer").click()
    await expect(card(page, action_id).locator(".outcome")).to_contain_text("9007199254740993")
    assert stage.action(action_id)["answer"] == 9007199254740993


async def test_what_attacks_the_reader_is_text(stage: Stage, visitors: Visitors) -> None:
    run_id, action_id = stage.asked("sly")
    page = await visitors.page(stage, f"#/inbox/{action_id}")
    question = card(page, action_id)
    await expect(question.locator(".warnings")).to_contain_text("RIGHT-TO-LEFT OVERRIDE")
    await expect(question.locator("pre").first).to_contain_text("⟦U+202E⟧doog ton⟦U+202C⟧")
    await expect(question.locator("pre").first).to_contain_text("<!-- said to nobody -->")
    rendering = question.locator(".markdown")
    await expect(rendering).to_contain_text("<script>window.attacked = 1</script>")
    await expect(rendering).to_contain_text("[picture, not loaded: pixel https://evil.example/p.png]")
    assert await rendering.locator("img, script, iframe, style").count() == 0
    assert await rendering.locator("a").evaluate_all("links => links.map(link => link.href)") == [
        "https://evil.example/login"
    ]
    await check_nothing_ran(page)
    await button(question, "Approve").click()
    await page.goto(f"{stage.url}/#/runs/{run_id}")
    await expect(page.locator(".run-head .chip")).to_have_text("Completed")
    for summary in await page.locator(".call summary").all():
        await summary.click()
    await expect(page.locator(".item-assistant .markdown")).to_contain_text("⟦U+202E⟧")
    await expect(page.locator(".call pre").filter(has_text="⟦U+202E⟧")).not_to_have_count(0)
    assert await page.locator("main :is(img, script, iframe)").count() == 0
    await check_nothing_ran(page)
