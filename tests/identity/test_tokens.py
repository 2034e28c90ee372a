"""Tokens: shown once, kept as a hash, refused once revoked or over, and no other text passes for one."""

from __future__ import annotations

import hmac
import http.client
import time

import pytest

from surefoot.core.redact import Redactor
from surefoot.errors import InvalidInput
from surefoot.runtime.secrets import EnvironmentSecrets
from surefoot.server import tokens as module
from surefoot.server.tokens import Given, Holder, Tokens, check_permission, hash_of, read_given
from surefoot.store.port import Store
from tests.cli.rig import Cli
from tests.places import Place
from tests.server.rig import serving
from tests.store.bench import ShiftedClock
from tests.support import eventually_sync

SECRET = "8f0c" * 16


async def test_a_token_says_whose_it_is(tokens: Tokens) -> None:
    made, text = await tokens.create("acme", "anna@example.com", ["read", "approve:permission=billing", "read"])
    holder = await tokens.find(text)
    assert holder == Holder(
        "acme", "anna@example.com", frozenset({"read", "approve:permission=billing"}), "token", made.id
    )


async def test_the_secret_is_not_in_the_store(tokens: Tokens, place: Place) -> None:
    _, text = await tokens.create("acme", "anna", ["read"])
    secret = text.rpartition("_")[2]
    kept = repr(place.contents())
    assert "anna" in kept
    assert secret not in kept
    assert hash_of(secret) in kept


async def test_no_other_text_is_a_token(tokens: Tokens) -> None:
    _, text = await tokens.create("acme", "anna", ["read"])
    mark, tenant, number, secret = text.split("_")
    other = await tokens.create("other", "bob", ["admin"])
    _, of_another, number_of_another, _ = other[1].split("_")
    wrong = [
        "", " ", text + " ", text[:-1], text + "a", text.upper(), f"sfs_{tenant}_{number}_{secret}",
        f"{mark}_{of_another}_{number}_{secret}", f"{mark}_{tenant}_{number_of_another}_{secret}",
        f"{mark}_{tenant}_{number}_{'a' * 52}", f"{mark}_{tenant}_{number[::-1]}_{secret}", secret, "x" * 10_000,
        "sft_a_" + number + "_" + secret, text + "\n", "\udc80" * 40, hash_of(secret),
    ]  # fmt: skip
    assert [await tokens.find(candidate) for candidate in wrong] == [None] * len(wrong)
    assert await tokens.find(text) is not None


async def test_a_revoked_or_expired_token_is_refused(tokens: Tokens, clock: ShiftedClock) -> None:
    _, text = await tokens.create("acme", "anna", ["read"])
    _, short = await tokens.create("acme", "bob", ["read"], expires_s=60.0)
    holder = await tokens.find(text)
    assert holder is not None and await tokens.find(short) is not None
    clock.advance(61.0)
    assert await tokens.find(short) is None
    assert await tokens.end(holder)
    assert await tokens.find(text) is None
    assert not await tokens.end(holder)


async def test_a_session_ends_with_its_token(tokens: Tokens, clock: ShiftedClock) -> None:
    _, text = await tokens.create("acme", "anna", ["read"])
    holder = await tokens.find(text)
    assert holder is not None
    texts = [(await tokens.begin_session(holder, 600.0))[1] for _ in range(2)]
    found = [await tokens.find(session, "session") for session in texts]
    assert [h and (h.tenant, h.name, h.permissions, h.kind) for h in found] == [
        ("acme", "anna", frozenset({"read"}), "session")
    ] * 2
    assert await tokens.find(texts[0]) is None, "a session is no token"
    assert await tokens.find(text, "session") is None, "a token is no session"
    assert found[0] is not None and await tokens.end(found[0])
    assert await tokens.find(texts[0], "session") is None
    assert await tokens.find(texts[1], "session") is not None
    await tokens.end(holder)
    assert await tokens.find(texts[1], "session") is None


async def test_a_session_is_over_after_its_time(tokens: Tokens, clock: ShiftedClock) -> None:
    _, text = await tokens.create("acme", "anna", ["read"], expires_s=1_000.0)
    holder = await tokens.find(text)
    assert holder is not None
    _, short = await tokens.begin_session(holder, 600.0)
    _, long = await tokens.begin_session(holder, 6_000.0)
    clock.advance(601.0)
    assert await tokens.find(short, "session") is None
    assert await tokens.find(long, "session") is not None
    clock.advance(400.0)
    assert await tokens.find(long, "session") is None, "its token has expired"


async def test_a_session_of_a_given_token_ends_when_the_setting_does(
    store: Store, clock: ShiftedClock, tokens: Tokens
) -> None:
    given = read_given(f"anna read {SECRET}", "acme")
    with_given = Tokens(store, clock, tokens._entropy, given)
    holder = await with_given.find(SECRET)
    assert holder is not None and holder.tenant == "acme"
    _, session = await with_given.begin_session(holder, 600.0)
    assert await with_given.find(session, "session") is not None
    assert await tokens.find(session, "session") is None
    changed = Tokens(store, clock, tokens._entropy, read_given(f"anna read {SECRET}", "other"))
    assert await changed.find(session, "session") is None, "the tenant is another"


async def test_every_comparison_is_of_constant_time(
    tokens: Tokens, store: Store, clock: ShiftedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []

    def counted(one: str, other: str) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Counting:
        compare_digest = staticmethod(counted)

    monkeypatch.setattr(module, "hmac", Counting)
    given = read_given(f"a read {SECRET}; b read {'b' * 32}; c read {'c' * 32}", "acme")
    book = Tokens(store, clock, tokens._entropy, given)
    _, text = await book.create("acme", "anna", ["read"])
    for candidate, times in ((SECRET, 3), ("z" * 40, 3), (text, 4), (text[:-52] + "a" * 52, 4)):
        compared.clear()
        await book.find(candidate)
        assert len(compared) == times, candidate
    unknown = text[:-60] + "0000000_" + text[-52:]
    compared.clear()
    await book.find(unknown)
    assert len(compared) == 4, "an unknown id is compared too"


def test_the_setting_is_read() -> None:
    text = f"anna read+start+approve {SECRET};\n acme/ci@x start sha256:{'ab' * 32} ;"
    assert read_given(text, "default") == (
        Given("default", "anna", ("read", "start", "approve"), hash_of(SECRET)),
        Given("acme", "ci@x", ("start",), "ab" * 32),
    )
    assert read_given("  ", "default") == ()


@pytest.mark.parametrize(
    "text",
    [
        f"anna {SECRET}",
        f"anna read {SECRET} more",
        "anna read tooshort",
        f"anna write {SECRET}",
        f"anna read, {SECRET}",
        f"/anna read {SECRET}",
        f"acme/ read {SECRET}",
        f"anna read sha256:{'AB' * 32}",
        f"anna read {SECRET}; bob read {SECRET}",
        f"{'a' * 300} read {SECRET}",
    ],
)
def test_a_bad_setting_names_its_entry_and_no_token(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_given(text, "default")
    assert caught.value.code == "bad_setting"
    assert "SUREFOOT_TOKENS" in str(caught.value)
    assert SECRET not in str(caught.value) and "tooshort" not in str(caught.value)


def test_permissions_are_words_of_a_list() -> None:
    good = ["read", "start", "approve", "resolve", "evidence", "admin", "approve:tool=send_invoice"]
    good += ["approve:class=lookup", "approve:class=opaque", "approve:permission=billing"]
    assert [check_permission(word) for word in good] == good
    bad = ["", "write", "Read", "approve:", "approve:tool", "approve:tool=", "approve:class=magic", "read:tool=x", "*"]
    bad += ["approve:who=x", "admin:", "approve:tool= "]
    for word in bad:
        with pytest.raises(InvalidInput) as caught:
            check_permission(word)
        assert caught.value.code == "bad_permission", word


async def test_a_token_needs_a_name_and_a_permission(tokens: Tokens) -> None:
    for name, permissions in (
        ("", ["read"]),
        (" ", ["read"]),
        ("anna", []),
        ("anna", ["read", "all"]),
        ("a" * 201, ["read"]),
    ):
        with pytest.raises(InvalidInput):
            await tokens.create("acme", name, permissions)


async def test_tokens_are_known_to_redaction_and_names_are_not(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_TOKENS", f"billing-team read+start+approve {SECRET}; other resolve {'q' * 33}")
    redactor = Redactor()
    EnvironmentSecrets(redactor)
    shown = redactor.text(f"billing-team may resolve with {SECRET} and {'q' * 33}")
    assert shown == "billing-team may resolve with [redacted:SUREFOOT_TOKENS] and [redacted:SUREFOOT_TOKENS]"
    _, text = await tokens.create("acme", "anna", ["read"])
    assert redactor.patterns(f"it is {text}, keep it") == (
        "it is [redacted:pattern:surefoot_token], keep it",
        ["surefoot_token"],
    )


async def test_a_holder_does_not_show_its_secret(tokens: Tokens, place: Place) -> None:
    _, text = await tokens.create("acme", "anna", ["read"])
    holder = await tokens.find(text)
    assert holder is not None
    _, session = await tokens.begin_session(holder, 60.0)
    found = await tokens.find(session, "session")
    assert found is not None and found.secret and found.secret in session
    assert found.secret not in repr(found)


def test_a_revoked_tokens_stream_ends_and_start_alone_reads_nothing(place: Place) -> None:
    cli = Cli(place)
    made = {p: cli.json("tokens", "create", p, "--permission", p).record() for p in ("read", "start", "admin")}
    bearer = {p: {"Authorization": f"Bearer {made[p]['token']}"} for p in made}
    with serving(place) as web:
        started = web.ask(
            "POST", "/v1/runs", {"agent": "writer", "input": "Go"}, headers={**bearer["start"], "Idempotency-Key": "k"}
        ).record()
        path = f"/v1/runs/{started['id']}"

        def waits() -> bool:
            return web.ask("GET", path, headers=bearer["read"]).record()["status"] == "waiting_for_user"

        eventually_sync(waits, "the question", seconds_max=30)
        told = web.ask("POST", f"{path}/messages", {"text": "peek"}, headers=bearer["start"]).record()
        assert told["status"] and not (told["steps"] or told["pending_actions"] or told["created_by"])
        assert web.ask("GET", path, headers=bearer["start"]).status == 403
        host, _, port = web.host.rpartition(":")
        stream = http.client.HTTPConnection(host, int(port), timeout=30)
        stream.request("GET", f"{path}/events", headers={**bearer["read"], "Accept": "text/event-stream"})
        answer = stream.getresponse()
        assert answer.readline().startswith(b"retry:")
        cli.json("tokens", "revoke", str(made["read"]["id"]))
        eventually_sync(lambda: web.ask("GET", path, headers=bearer["read"]).status == 401, "the end of the token")
        time_is_over = time.monotonic() + 1.1
        eventually_sync(lambda: time.monotonic() > time_is_over, "what was believed to be over")
        assert web.ask("POST", f"{path}/cancel", headers=bearer["admin"]).status == 202
        seen = answer.read()
        assert b"run_started" in seen and b"run_cancelled" not in seen and b"event: end" not in seen
        stream.close()
