"""Evidence that comes in by itself: it settles an open step at once, once, and nothing else does anything."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from msgspec.structs import replace

from surefoot import Surefoot
from surefoot.core.marker import Keyring, keys_in, make_marker
from surefoot.server import signatures
from surefoot.server.doorman import TokenDoorman
from surefoot.server.factory import create_app
from surefoot.server.options import Options
from surefoot.server.tokens import Tokens, read_given
from surefoot.testing.github_state import stamp
from surefoot.testing.world import BOT
from tests.github.rig import NUMBER, REPO
from tests.identity.rig import EVIDENCE_SECRET, GITHUB_SECRET, SECRET, STRANGER, WEBHOOK, Rig, rig_of, signed, token_of
from tests.places import Place
from tests.server.rig import serving


async def test_a_comment_with_our_marker_settles_the_step_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        answer = await rig.deliver(rig.delivery())
        assert (answer.status_code, answer.json()) == (200, {"outcome": "settled"})
        assert await rig.step(run_id) == ("succeeded", "found", str(rig.comment.id))
        done = await rig.sf.wait(run_id, timeout=20)
        assert done.status == "completed"
        (step,) = [s for s in done.steps if s.type == "tool_call"]
        assert [(e.verdict, e.source) for e in step.evidence][-1] == ("found", "webhook")
        assert len(rig.world.requests("POST")) == 1


async def test_a_delivery_that_comes_again_changes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        raw = rig.delivery()
        assert (await rig.deliver(raw)).json() == {"outcome": "settled"}
        done = await rig.sf.wait(run_id, timeout=20)
        for again, outcome in ((raw, "repeated"), (raw + b" ", "known"), (raw + b" ", "repeated")):
            assert (await rig.deliver(again)).json() == {"outcome": outcome}
        assert await rig.sf.snapshot(run_id) == done
        assert len(rig.world.requests("POST")) == 1


async def test_c058_a_delivery_five_times_at_once_on_two_processes_counts_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        raw = rig.delivery()
        # In the setting a comma stands between two secrets.
        theirs = GITHUB_SECRET.replace(",", "")
        settings = {"SUREFOOT_STORE": rig.sf.url, "SUREFOOT_SECRET": SECRET, "SUREFOOT_GITHUB_WEBHOOK_SECRET": theirs}
        with serving(place, more=settings) as other:

            async def at_the_other(delivery_id: str) -> object:
                headers = {**signed(raw, secret=theirs), "X-GitHub-Delivery": delivery_id}
                return (await asyncio.to_thread(other.ask, "POST", WEBHOOK, raw=raw, headers=headers)).record()

            async def here() -> object:
                return (await rig.deliver(raw)).json()

            first = await asyncio.gather(*(at_the_other("the one") if n % 2 else here() for n in range(5)))
            done = await rig.sf.wait(run_id, timeout=20)
            again = await asyncio.gather(at_the_other("another one"), here())
        outcomes = sorted(str(dict(answer)["outcome"]) for answer in first if isinstance(answer, dict))
        assert len(outcomes) == 5 and outcomes.count("settled") == 1, first
        assert set(outcomes) <= {"settled", "known", "repeated"}, first
        assert list(again) == [{"outcome": "repeated"}] * 2
        assert done.status == "completed"
        # A look that was under way may still be written down; what was found stands once.
        (step,) = [s for s in (await rig.sf.snapshot(run_id)).steps if s.type == "tool_call"]
        assert step.external_resource_id == str(rig.comment.id)
        assert [e.source for e in step.evidence if e.verdict == "found"] == ["webhook"]
        assert len(rig.world.requests("POST")) == 1


async def test_what_is_not_ours_changes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        before = await rig.sf.snapshot(run_id)
        ours = rig.comment
        issue = {"number": NUMBER}
        other_place = {"number": NUMBER + 1}
        foreign_key = make_marker(
            Keyring([b"f" * 32]), tenant_id="default", run_id=run_id, step_id=before.steps[1].id,
            key=keys_in(ours.body)[0], place=f"{REPO}#{NUMBER}", account=str(BOT.id),
        )  # fmt: skip
        attempts = {
            "a stranger copied it": rig.delivery(replace(ours, author=STRANGER)),
            "it stands elsewhere": rig.delivery(issue=other_place),
            "another repository": rig.delivery(repository={"full_name": "acme/other"}),
            "it was edited": rig.delivery(action="edited"),
            "it was deleted": rig.delivery(action="deleted"),
            "no marker": rig.delivery(replace(ours, body="Looks good.")),
            "an unknown key": rig.delivery(replace(ours, body=ours.body.replace("run_", "run_9"))),
            "another keyring": rig.delivery(replace(ours, body=f"x\n\n{foreign_key}")),
            "a quoted marker": rig.delivery(replace(ours, body="> " + ours.body.splitlines()[-1])),
            "a changed MAC": rig.delivery(replace(ours, body=ours.body.replace("mac=", "mac=0"))),
        }
        for why, raw in attempts.items():
            answer = await rig.deliver(raw)
            assert (answer.status_code, answer.json()) == (200, {"outcome": "ignored"}), why
        for event in ("push", "ping", "pull_request", ""):
            assert (await rig.deliver(rig.delivery(), event=event)).json() == {"outcome": "ignored"}
        old = replace(ours, created_at=rig.sf.doors.clock.now().wall - 4 * 86_400)
        assert json.loads(rig.delivery(old))["comment"]["created_at"] == stamp(old.created_at)
        assert (await rig.deliver(rig.delivery(old))).json() == {"outcome": "too_old"}
        after = await rig.sf.snapshot(run_id)
        assert [e for s in after.steps for e in s.evidence if e.source != "lookup"] == []
        assert (after.status, await rig.step(run_id)) == (before.status, ("outcome_unknown", None, None))
        assert issue["number"] == NUMBER
        assert (await rig.deliver(rig.delivery())).json() == {"outcome": "settled"}


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


async def test_a_wrong_signature_is_refused_and_a_large_body_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        raw = rig.delivery()
        for secret in ("another secret", "", GITHUB_SECRET + " "):
            assert problem(await rig.deliver(raw, secret=secret)) == (401, "bad_signature")
        good = (await rig.deliver(b"{}")).request.headers["X-Hub-Signature-256"]
        for given in ("", "sha256=", good, good.upper(), good.removeprefix("sha256="), "sha1=" + "0" * 40, "\u00e9"):
            sent = {b"X-GitHub-Event": b"issue_comment", b"X-Hub-Signature-256": given.encode("latin-1")}
            answer = await rig.http.post("/v1/webhooks/github", content=raw, headers=sent)
            assert problem(answer) == (401, "bad_signature"), given
        assert problem(await rig.deliver(b"x" * 2_000_000)) == (413, "body_too_large")
        assert problem(await rig.deliver(b"{")) == (400, "broken_json")
        assert problem(await rig.deliver(b'{"action":"created"}')) == (422, "invalid_input")
        assert await rig.step(run_id) == ("outcome_unknown", None, None)


async def test_without_a_secret_nothing_is_taken(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch, options=Options()) as rig:
        assert problem(await rig.deliver(b"{}")) == (404, "no_webhook_secret")
        assert problem(await rig.deliver(b"{}", secret="")) == (404, "no_webhook_secret")
        signed = signatures.sign("", "m", int(rig.sf.doors.clock.now().wall), b"{}")
        sent = {**signed, "Content-Type": "application/json"}
        answer = await rig.http.post("/v1/evidence", content=b"{}", headers=sent)
        assert problem(answer) == (401, "bad_signature")


def evidence_of(rig: Rig, key: str, **more: object) -> bytes:
    return json.dumps({"key": key, "verdict": "found", "resource_id": str(rig.comment.id), **more}).encode()


async def test_signed_evidence_counts_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        (key,) = keys_in(rig.comment.body)
        raw = evidence_of(rig, key)
        now = int(rig.sf.doors.clock.now().wall)
        good = {**signatures.sign(EVIDENCE_SECRET, "msg_1", now, raw), "Content-Type": "application/json"}
        wrong: list[tuple[dict[str, str], bytes, str]] = [
            (signatures.sign("another", "msg_1", now, raw), raw, "bad_signature"),
            (good, raw + b" ", "bad_signature"),
            ({**good, "webhook-id": "msg_2"}, raw, "bad_signature"),
            ({**good, "webhook-timestamp": str(now + 1)}, raw, "bad_signature"),
            ({**good, "webhook-signature": good["webhook-signature"][3:]}, raw, "bad_signature"),
            (signatures.sign(EVIDENCE_SECRET, "msg_1", now - 400, raw), raw, "old_signature"),
            (signatures.sign(EVIDENCE_SECRET, "msg_1", now + 400, raw), raw, "old_signature"),
        ]
        for headers, body, code in wrong:
            sent = {**headers, "Content-Type": "application/json"}
            assert problem(await rig.http.post("/v1/evidence", content=body, headers=sent)) == (401, code)
        assert await rig.step(run_id) == ("outcome_unknown", None, None)
        for _ in range(2):
            answer = await rig.http.post("/v1/evidence", content=raw, headers=good)
            assert (answer.status_code, answer.json()) == (200, {"key": key, "new": True})
        other = evidence_of(rig, key, resource_id="another")
        twice = {**signatures.sign(EVIDENCE_SECRET, "msg_1", now, other), "Content-Type": "application/json"}
        assert problem(await rig.http.post("/v1/evidence", content=other, headers=twice)) == (422, "key_reused")
        again = signatures.sign(EVIDENCE_SECRET, "msg_9", now, raw)
        answer = await rig.http.post("/v1/evidence", content=raw, headers={**again, "Content-Type": "application/json"})
        assert answer.json() == {"key": key, "new": False}
        assert await rig.step(run_id) == ("succeeded", "found", str(rig.comment.id))
        snapshot = await rig.sf.snapshot(run_id)
        reports = [e for s in snapshot.steps for e in s.evidence if e.source == "webhook"]
        assert len(reports) == 1 and reports[0].coverage == {"reported_by": "a signed request"}


async def test_evidence_by_token(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        (key,) = keys_in(rig.comment.body)
        found = json.loads(evidence_of(rig, key, url="https://github.com/x"))
        for permission in ("read", "start", "approve", "resolve"):
            assert problem(await rig.ask("POST", "/v1/evidence", found, token=permission)) == (403, "not_permitted")
        assert problem(await rig.ask("POST", "/v1/evidence", found)) == (401, "not_signed_in")
        text = await rig.http.post(
            "/v1/evidence", content=json.dumps(found), headers={"Content-Type": "text/plain", **_bearer()}
        )
        assert problem(text) == (415, "not_json")
        missing = await rig.ask("POST", "/v1/evidence", {**found, "key": "no:such"}, token="evidence")
        assert problem(missing) == (404, "not_found")
        bare = await rig.ask("POST", "/v1/evidence", {"key": key, "verdict": "found"}, token="evidence")
        assert problem(bare) == (422, "invalid_input")
        for verdict in ("absent", "undetermined"):
            told = await rig.ask("POST", "/v1/evidence", {"key": key, "verdict": verdict}, token="evidence")
            assert told.json() == {"key": key, "new": True}
            assert await rig.step(run_id) == ("outcome_unknown", None, None), "it concludes nothing by itself"
        assert (await rig.ask("POST", "/v1/evidence", found, token="evidence")).json() == {"key": key, "new": True}
        assert await rig.step(run_id) == ("succeeded", "found", str(rig.comment.id))
        snapshot = await rig.sf.snapshot(run_id)
        told_by = [e.coverage for s in snapshot.steps for e in s.evidence if e.source == "report"]
        assert told_by == [{"reported_by": "evidence-holder, token evidence-holder from 203.0.113.7"}] * 3
        assert len(rig.world.requests("POST")) == 1


async def test_evidence_about_another_tenants_call_finds_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig_of(place, monkeypatch) as rig:
        run_id = await rig.in_doubt()
        (key,) = keys_in(rig.comment.body)
        async with Surefoot(rig.sf.url, tenant="another", secret=SECRET) as other:
            given = read_given(f"eve admin {token_of('evidence')}", "another")
            doorman = TokenDoorman(Tokens(other.store, other.doors.clock, other.doors.entropy, given), [])
            app = create_app(other, doorman, options=Options(github_secrets=(GITHUB_SECRET,)))
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                theirs = Rig(other, rig.world, http)
                answers = [
                    await theirs.ask("POST", "/v1/evidence", {"key": asked, "verdict": "absent"}, token="evidence")
                    for asked in (key, "no:such")
                ]
                assert [problem(answer) for answer in answers] == [(404, "not_found")] * 2
                assert (await theirs.deliver(rig.delivery())).json() == {"outcome": "ignored"}
                text = (await theirs.ask("GET", "/metrics", token="evidence")).text
                assert "surefoot_runs{" not in text and "surefoot_evidence_total{" not in text
        assert await rig.step(run_id) == ("outcome_unknown", None, None)


def _bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of('evidence')}"}


def test_keys_are_read_from_markers() -> None:
    ring = Keyring([b"k" * 32])
    for key in ("run_1:step_2", "send:invoice 81/ü", "a%41", "x" * 60 + "-->", "日本"):
        marker = make_marker(ring, tenant_id="t", run_id="r", step_id="s", key=key, place="p", account="1")
        assert keys_in(f"text\n\n{marker}\nmore") == [key]
        assert keys_in(f"> {marker}") == []
    long = make_marker(ring, tenant_id="t", run_id="r", step_id="s", key="k" * 300, place="p", account="1")
    assert keys_in(long) == []


def test_a_secret_in_the_form_of_standard_webhooks_is_decoded() -> None:
    # The example of the specification's own test vectors.
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    headers = signatures.sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signatures.check([secret], headers, body, 1614265331) is None


def test_the_signature_is_the_one_that_github_documents() -> None:
    # The example of GitHub's documentation on validating webhook deliveries.
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    assert signatures.github_signed([secret], header, body)
    assert signatures.github_signed(["new", secret], f" {header} ", body)
    assert not signatures.github_signed([secret], header, body + b"\n")
    assert not signatures.github_signed([], header, body)
