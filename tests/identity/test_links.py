"""Links to one question: whoever follows one changes nothing; who may decide decides once; a bad one says why."""

from __future__ import annotations

import html
import math
import re
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import httpx
import pytest
from msgspec.structs import replace

from surefoot import Found, Receipt
from surefoot.core.marker import Keyring
from surefoot.errors import InvalidInput, NotAllowed
from surefoot.server.callers import Loopback
from surefoot.server.links import LINK_SECONDS_MAX, PATH, Link, link_to, read_link, write_link
from surefoot.store.port import ActionRow
from tests.github.rig import BODY
from tests.identity.rig import HOST, Rig, rig_of, token_of
from tests.places import Place

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
RING = Keyring([b"k" * 32])
LINK = Link("acme", "act_1", "ab" * 32, 2_000)


def test_a_link_says_what_was_written() -> None:
    for link in (LINK, replace(LINK, person="ann@x"), replace(LINK, person="安娜", permission="billing")):
        assert read_link(RING, write_link(RING, link).removeprefix(PATH), 1_999.0) == link


def test_a_link_is_over_at_its_end_and_with_another_keyring_forged() -> None:
    text = write_link(RING, LINK).removeprefix(PATH)
    with pytest.raises(NotAllowed) as caught:
        read_link(RING, text, 2_000.0)
    assert caught.value.code == "link_expired"
    rotated = Keyring([b"n" * 32, b"k" * 32])
    assert read_link(rotated, text, 0.0) == LINK
    with pytest.raises(NotAllowed) as caught:
        read_link(Keyring([b"n" * 32]), text, 0.0)
    assert caught.value.code == "link_forged"


def test_no_changed_text_is_a_link() -> None:
    text = write_link(RING, replace(LINK, person="ann")).removeprefix(PATH)
    other = write_link(RING, replace(LINK, action_id="act_2")).removeprefix(PATH)
    data, key, mac = text.split(".")
    wrong = [
        "",
        ".",
        "..",
        text[:-1],
        text + "0",
        text + "=",
        f"{data}=.{key}.{mac}",
        f"{other.split('.')[0]}.{key}.{mac}",
    ]
    wrong += [f"{data}.{key}", f"{data}.{key}.{mac}.{mac}", "a" * 5_000, "\u00e9.\u00e9.\u00e9", text.upper()]
    wrong += [text[:i] + ("A" if text[i] != "A" else "B") + text[i + 1 :] for i in range(len(text))]
    for candidate in wrong:
        with pytest.raises(NotAllowed) as caught:
            read_link(RING, candidate, 0.0)
        assert caught.value.code == "link_forged", candidate


@pytest.fixture
async def rig(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    async with rig_of(place, monkeypatch, gated=True, body=f"{BODY}\n\u202egnp <script>alert(1)</script>") as made:
        yield made


async def asked(rig: Rig) -> ActionRow:
    run = await rig.sf.start("reviewer", "Review it")
    await rig.sf.wait(run.id, timeout=20)
    (row,) = await rig.sf.actions(status="waiting", run_id=run.id)
    return row


def path_to(rig: Rig, row: ActionRow, **more: object) -> str:
    wall = rig.sf.doors.clock.now().wall
    link = replace(link_to(row.action, rig.sf.tenant, wall), **more)
    return write_link(rig.sf.context.keyring, link)


async def post(rig: Rig, path: str, fields: dict[str, str], headers: dict[str, str] | None = None) -> httpx.Response:
    return await rig.http.post(path, content=urlencode(fields), headers={"Origin": HOST, **FORM, **(headers or {})})


def hidden(answer: httpx.Response) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', answer.text)
    return {name: html.unescape(value) for name, value in found}


async def test_c022_scanners_and_previews_change_nothing(rig: Rig) -> None:
    row = await asked(rig)
    before = await rig.sf.snapshot(row.run_id)
    paths = [path_to(rig, row), path_to(rig, row, person="ann")]
    agents = [
        "Slackbot-LinkExpanding 1.0",
        "Mozilla/5.0 (compatible; Barracuda)",
        "facebookexternalhit/1.1",
        "curl/8",
        "",
    ]
    for path in paths:
        for agent in agents:
            for purpose in (
                {},
                {"Purpose": "prefetch"},
                {"Sec-Purpose": "prefetch;prerender"},
                {"Sec-Fetch-Site": "cross-site"},
            ):
                for method in ("GET", "HEAD"):
                    for query in ("", "?decision=approve", "?here=1&decision=approve&key=1"):
                        answer = await rig.http.request(method, path + query, headers={"User-Agent": agent, **purpose})
                        assert answer.status_code in (200, 401)
                        assert (answer.text == "") is (method == "HEAD")
        for method in ("OPTIONS", "PUT", "PATCH", "DELETE"):
            assert (await rig.http.request(method, path)).status_code == 405
    assert await rig.sf.snapshot(row.run_id) == before
    assert rig.world.requests("POST") == []


async def test_the_page_shows_exactly_what_will_be_sent(rig: Rig) -> None:
    row = await asked(rig)
    answer = await rig.http.get(path_to(rig, row, person="ann"))
    assert answer.status_code == 200
    shown = html.unescape(answer.text)
    assert "<script>alert" not in answer.text and "<script>alert(1)</script>" in shown
    assert "\u202e" not in answer.text and "⟦U+202E⟧" in shown
    assert row.action.input_hash in shown and "create_issue_comment" in shown and "ann" in shown
    assert "script" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "same-origin" and answer.headers["cache-control"] == "no-store"
    chinese = await rig.http.get(path_to(rig, row, person="ann"), headers={"Accept-Language": "zh-CN"})
    assert "批准" in chinese.text and 'lang="zh-CN"' in chinese.text


async def test_a_person_decides_by_their_link_once(rig: Rig) -> None:
    row = await asked(rig)
    path = path_to(rig, row, person="ann")
    form = hidden(await rig.http.get(path))
    other = hidden(await rig.http.get(path))
    fields = {**form, "decision": "approve", "reason": "fine"}
    both = {"Origin": HOST, **FORM}
    twice = await rig.http.post(path, content=urlencode(fields) + "&decision=reject", headers=both)
    assert twice.status_code == 400, "one form says one thing"
    answer = await post(rig, path, fields)
    assert answer.status_code == 200 and "ann" in answer.text
    again = await post(rig, path, fields)
    assert again.status_code == 200, "the reply was lost: the same form is the same decision"
    for changed in ({**other, "decision": "approve"}, {**form, "decision": "reject"}, {"decision": "approve"}):
        refused = await post(rig, path, changed)
        assert refused.status_code == 409 and "ann" in refused.text
    assert (await rig.http.get(path)).status_code == 410
    decided = await rig.sf.store.action(rig.sf.tenant, row.action.id)
    assert (decided.action.decision, decided.action.decided_by, decided.reason) == ("approve", "ann", "fine")
    assert decided.action.decided_from == "a link, from 203.0.113.7"
    done = await rig.sf.wait(row.run_id, timeout=20)
    assert done.status == "completed" and len(rig.world.requests("POST")) == 1


async def test_other_sites_pages_cannot_decide_by_a_link(rig: Rig) -> None:
    row = await asked(rig)
    path = path_to(rig, row, person="ann")
    form = {**hidden(await rig.http.get(path)), "decision": "approve"}
    for headers in (
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ):  # fmt: skip
        assert (await post(rig, path, form, headers)).status_code == 403, headers
    assert (await rig.http.get(path, headers={"Host": "evil.example"})).status_code == 403, "nobody's name shows it"
    for media in ("text/plain", "multipart/form-data; boundary=x", "application/json", ""):
        assert (await post(rig, path, form, {"Content-Type": media})).status_code == 415, media
    for fields in ({**form, "decision": "yes"}, {"key": "1"}, {**form, "decision": "give_up"}):
        assert (await post(rig, path, fields)).status_code == 400
    big = await rig.http.post(path, content=b"x" * 20_000, headers={"Origin": HOST, **FORM})
    assert big.status_code == 413
    assert (await rig.sf.store.action(rig.sf.tenant, row.action.id)).action.status.value == "waiting"


async def test_bad_links_say_what_they_are(rig: Rig) -> None:
    row = await asked(rig)
    good = path_to(rig, row, person="ann")
    expired = path_to(rig, row, person="ann", expires_at=1)
    other_content = path_to(rig, row, person="ann", input_hash="00" * 32)
    other_tenant = path_to(rig, row, person="ann", tenant="another")
    missing = path_to(rig, row, person="ann", action_id="act_none")
    for path, status, words in (
        (good[:-1] + "x", 403, "not one of this server"),
        (expired, 410, "This link is over"),
        (other_content, 403, "not one of this server"),
        (other_tenant, 403, "not one of this server"),
        (missing, 404, "act_none"),
    ):
        for answer in (await rig.http.get(path), await post(rig, path, {"decision": "approve", "key": "1"})):
            assert (answer.status_code, words in html.unescape(answer.text)) == (status, True), answer.text
    await rig.sf.cancel(row.run_id)
    settled = [await rig.http.get(good), await post(rig, good, {"decision": "approve", "key": "1"})]
    assert [answer.status_code for answer in settled] == [410, 410]
    assert "cancelled" in settled[0].text
    assert rig.world.requests("POST") == []


async def test_a_link_that_names_nobody_takes_a_login(rig: Rig) -> None:
    row = await asked(rig)
    path = path_to(rig, row)
    first = await rig.http.get(path)
    assert (first.status_code, "Looks good" in first.text) == (200, False)
    assert f'content="0;url={path}?here=1"' in first.text, "a browser that comes from elsewhere comes again from here"
    second = await rig.http.get(path + "?here=1")
    assert (second.status_code, "Looks good" in second.text, 'type="password"' in second.text) == (401, False, True)
    assert (await post(rig, path, {"decision": "approve", "key": "1"})).status_code == 401
    assert (await post(rig, path, {"token": "z" * 40})).status_code == 401
    # Somebody who may read and not approve sees it, and has no buttons.
    looking = await post(rig, path, {"token": token_of("read")})
    assert looking.status_code == 303 and looking.headers["location"] == path + "?here=1"
    seen = await rig.http.get(path + "?here=1")
    assert "Looks good" in seen.text and "may not decide" in seen.text and "<form" not in seen.text
    rig.http.cookies.clear()
    await post(rig, path, {"token": token_of("approve")})
    form = hidden(await rig.http.get(path + "?here=1"))
    assert set(form) == {"key", "csrf"}
    for wrong in ("", "0" * 64):
        assert (await post(rig, path, {**form, "csrf": wrong, "decision": "approve"})).status_code == 403
    answer = await post(rig, path, {**form, "decision": "reject"})
    assert answer.status_code == 200
    decided = (await rig.sf.store.action(rig.sf.tenant, row.action.id)).action
    assert (decided.decision, decided.decided_by) == ("reject", "approve-holder")
    assert decided.decided_from == "a link, on the page, from 203.0.113.7"


async def test_a_link_with_a_permission_takes_that_too(rig: Rig) -> None:
    row = await asked(rig)
    path = path_to(rig, row, permission="billing")
    await post(rig, path, {"token": token_of("approve")})
    assert "may not decide" in (await rig.http.get(path + "?here=1")).text
    form = {"key": "1", "decision": "approve"}
    assert (await post(rig, path, form)).status_code == 403
    rig.http.cookies.clear()
    await post(rig, path, {"token": token_of("admin")})
    form = {**hidden(await rig.http.get(path + "?here=1")), "decision": "approve"}
    assert (await post(rig, path, form)).status_code == 200


async def test_a_link_with_a_permission_takes_that_too_where_a_double_is_asked_about(rig: Rig) -> None:
    row = await asked(rig)
    await rig.sf.approve(row.action.id, by="ann")
    step = (await rig.sf.wait(row.run_id, timeout=20)).steps[1]
    await rig.sf.report(step.operation_key or "", Found(Receipt(resource_id="77")))
    (doubled,) = await rig.sf.actions(status="waiting")
    assert doubled.action.kind.value == "duplicate"
    form = {"key": "1", "decision": "reject"}
    path = path_to(rig, doubled, permission="billing")
    await post(rig, path, {"token": token_of("resolve")})
    assert "may not decide" in (await rig.http.get(path + "?here=1")).text
    assert (await post(rig, path, form)).status_code == 403
    path = path_to(rig, doubled)
    form = {**hidden(await rig.http.get(path + "?here=1")), "decision": "reject"}
    assert (await post(rig, path, form)).status_code == 200


async def test_without_tokens_the_machines_user_decides(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch, gated=True, doorman=Loopback("default", "me")) as rig:
        row = await asked(rig)
        path = path_to(rig, row)
        form = hidden(await rig.http.get(path))
        assert set(form) == {"key"}
        assert (
            await post(rig, path, {**form, "decision": "approve"}, {"Origin": "http://evil.example"})
        ).status_code == 403
        assert (await post(rig, path, {**form, "decision": "approve"})).status_code == 200
        assert (await rig.sf.store.action("default", row.action.id)).action.decided_by == "me"


async def test_a_link_ends_with_its_action(rig: Rig) -> None:
    row = await asked(rig)
    now = rig.sf.doors.clock.now().wall
    assert row.action.expires_wall is not None
    assert link_to(row.action, "default", now, seconds=LINK_SECONDS_MAX).expires_at == int(row.action.expires_wall)
    assert link_to(row.action, "default", now, seconds=60).expires_at == int(now + 60)
    for wrong in ({"seconds": 0.0}, {"seconds": 1e9}, {"seconds": math.inf}, {"person": " "}):
        with pytest.raises(InvalidInput):
            link_to(row.action, "default", now, **wrong)
