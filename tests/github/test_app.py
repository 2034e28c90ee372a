"""Tokens of GitHub Apps, against a World that checks the signature as GitHub does."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from surefoot.connectors import github, github_app
from surefoot.core.redact import Redactor
from surefoot.effects import Absent, Found, NotSent, Refused, Undetermined
from surefoot.runtime.secrets import EnvironmentSecrets
from surefoot.testing import faults as f
from surefoot.testing.github_state import Account, account_view
from surefoot.testing.wire import Outcome, Reply, WireRequest, json_reply
from surefoot.testing.world import World
from tests.github.rig import BODY, COMMENTS, NUMBER, REPO, JumpingClock, Rig, WorldDoor

KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
APP_BOT = Account("my-app[bot]", 41_000_777, "Bot")
HOUR = 3_600.0
TOKENS = "/app/installations/55/access_tokens"


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    """The key as GitHub hands it out."""
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(kind, form, serialization.NoEncryption()).decode()


class AppWorld(World):
    """A World with an app: `/app…` takes the app's own signed note, everything else an installation's token."""

    def __init__(self, clock: JumpingClock) -> None:
        super().__init__(now=clock.now().wall, accounts={})
        self.issued: list[str] = []
        self.add_pull(REPO, NUMBER)

    def handle(self, request: WireRequest, now: float) -> Outcome:
        if request.path.startswith("/app"):
            self.accounts["note"] = APP_BOT
            lines = {**request.headers, "authorization": "token note"}
            hit = super().handle(WireRequest(request.method, request.target, lines, request.body), now)
            del self.accounts["note"]
            if hit.reply is None or hit.reply.status != 404:
                return hit  # a fault
            return Outcome(hit.request, self._app(request, now), now)
        if request.path == "/users/my-app[bot]":
            return Outcome(0, json_reply(200, account_view(APP_BOT)), now)
        return super().handle(request, now)

    def _app(self, request: WireRequest, now: float) -> Reply:
        claims = checked(request.headers.get("authorization", "").removeprefix("Bearer "))
        if (
            claims is None
            or claims["iss"] != "1234"
            or not float(str(claims["iat"])) <= now < float(str(claims["exp"]))
        ):
            return json_reply(401, {"message": "A JSON web token could not be decoded"})
        if float(str(claims["exp"])) - float(str(claims["iat"])) > 600:
            return json_reply(401, {"message": "'Expiration time' claim ('exp') is too far in the future"})
        if request.path == "/app":
            return json_reply(200, {"slug": "my-app"})
        assert request.path == TOKENS and request.method == "POST"
        self.issued.append(f"ghs_token{len(self.issued)}xxxxxxxx")
        self.accounts = {self.issued[-1]: APP_BOT}
        ends = datetime.fromtimestamp(now + HOUR, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return json_reply(201, {"token": self.issued[-1], "expires_at": ends})


def checked(note: str) -> Mapping[str, object] | None:
    """The claims of a note whose signature is the app's."""
    head, _, signature = note.rpartition(".")
    try:
        KEY.public_key().verify(decoded(signature), head.encode(), padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError):
        return None
    assert json.loads(decoded(head.partition(".")[0])) == {"alg": "RS256", "typ": "JWT"}
    claims = json.loads(decoded(head.partition(".")[2]))
    assert isinstance(claims, dict)
    return claims


def decoded(text: str) -> bytes:
    """Base64 as notes write it."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.fixture(autouse=True)
def _app(monkeypatch: pytest.MonkeyPatch) -> None:
    github_app._tokens.clear()
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.setenv("GITHUB_APP_ID", "1234")
    monkeypatch.setenv("GITHUB_APP_INSTALLATION_ID", "55")
    monkeypatch.setenv("GITHUB_APP_PRIVATE_KEY", pem(KEY))
    monkeypatch.delenv("GITHUB_APP_PRIVATE_KEY_FILE", raising=False)


class AppRig(Rig):
    """A rig whose secrets are the environment's, with their redaction."""

    def __init__(self) -> None:
        clock = JumpingClock(1_700_000_000.0)
        self.app_world = AppWorld(clock)
        super().__init__(self.app_world, WorldDoor(self.app_world, clock), clock, seconds=15.0)
        self.redactor = Redactor()
        self.secrets = EnvironmentSecrets(self.redactor)  # type: ignore[assignment]  # the real ones


@pytest.fixture
def rig() -> AppRig:
    """A World with an app."""
    return AppRig()


async def test_a_comment_of_the_app_is_made_and_found(rig: AppRig) -> None:
    made = await rig.create()
    (comment,) = rig.world.comments(REPO, NUMBER)
    assert comment.author == APP_BOT and made.resource_id == str(comment.id)
    assert isinstance(await rig.find(), Found)
    assert isinstance(await rig.find(step="other"), Absent)


async def test_absent_can_be_earned_without_any_setting(rig: AppRig) -> None:
    verdict = await rig.find()
    assert isinstance(verdict, Absent) and isinstance(verdict.coverage, dict)
    assert verdict.coverage["account"] == "my-app[bot]:41000777"


async def test_a_token_is_kept_until_five_minutes_before_its_end(rig: AppRig) -> None:
    await rig.create(step="a")
    rig.pass_time(HOUR - 310)
    await rig.create(step="b")
    assert len(rig.app_world.issued) == 1
    rig.pass_time(20)
    await rig.create(step="c")
    assert len(rig.app_world.issued) == 2


async def test_a_token_that_is_refused_is_not_used_again(rig: AppRig) -> None:
    await rig.create(step="a")
    rig.world.accounts = {}
    with pytest.raises(Refused):
        await rig.create(step="b")
    await rig.create(step="b", attempt=2)
    assert len(rig.app_world.issued) == 2


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (f.StatusBefore(500), NotSent),
        (f.LostReply(), NotSent),
        (f.Hang(), NotSent),
        (f.StatusBefore(401), Refused),
        (f.StatusBefore(429), Refused),
        (f.StatusBefore(201, body={"token": ""}), Refused),
    ],
)
async def test_without_a_token_nothing_was_sent(rig: AppRig, fault: f.AnyFault, raised: type[Exception]) -> None:
    rig.fault(fault, path=TOKENS)
    with pytest.raises(raised):
        await rig.create()
    assert rig.world.requests("POST", COMMENTS) == []


async def test_a_kept_token_is_not_shown(rig: AppRig) -> None:
    await rig.create(step="a")
    assert github_app._tokens and rig.world.accounts
    assert not any(token in repr(github_app._tokens) for token in rig.world.accounts)


async def test_a_kept_token_that_was_revoked_is_no_end_of_the_call(rig: AppRig) -> None:
    await rig.create(step="a")
    rig.world.accounts.clear()
    with pytest.raises(Refused) as refused:
        await rig.create()
    assert (refused.value.status, refused.value.retry_after) == (401, 0.0)
    await rig.create()
    rig.fault(f.StatusBefore(401), times=2)
    with pytest.raises(Refused) as first:
        await rig.create(step="b")
    with pytest.raises(Refused) as second:
        await rig.create(step="b")
    assert (first.value.retry_after, second.value.retry_after) == (0.0, None), "a new token is refused once"


async def test_a_lookup_without_a_token_cannot_tell(rig: AppRig) -> None:
    rig.fault(f.StatusBefore(502), path=TOKENS)
    assert isinstance(await rig.find(), Undetermined)


async def test_the_key_may_stand_in_a_file_or_in_one_line(
    rig: AppRig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_APP_PRIVATE_KEY", pem(KEY).replace("\n", "\\n"))
    await rig.create(step="a")
    monkeypatch.delenv("GITHUB_APP_PRIVATE_KEY")
    (tmp_path / "app.pem").write_text(pem(KEY))
    monkeypatch.setenv("GITHUB_APP_PRIVATE_KEY_FILE", str(tmp_path / "app.pem"))
    await rig.create(step="b")
    assert rig.redactor.has_known(pem(KEY)) is not None


async def test_key_note_and_token_are_known_to_redaction(rig: AppRig) -> None:
    await rig.create()
    sent = [entry.headers for entry in rig.world.requests()]
    assert all("authorization" not in headers for headers in sent), "the World logs none"
    assert rig.redactor.has_known(rig.app_world.issued[0]) == "GITHUB_APP_TOKEN"
    assert rig.redactor.has_known(pem(KEY).splitlines()[3]) == "GITHUB_APP_PRIVATE_KEY"
    assert pem(KEY)[40:60] not in repr(github_app.configured_app(rig.op()))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("GITHUB_APP_INSTALLATION_ID", "", "GITHUB_APP_INSTALLATION_ID"),
        ("GITHUB_APP_INSTALLATION_ID", "x/../5", "GITHUB_APP_INSTALLATION_ID"),
        ("GITHUB_APP_PRIVATE_KEY", "", "GITHUB_APP_PRIVATE_KEY"),
        ("GITHUB_APP_PRIVATE_KEY", "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "PEM"),
        ("GITHUB_APP_PRIVATE_KEY", pem(ec.generate_private_key(ec.SECP256R1())), "RSA"),
        ("GITHUB_APP_ID", "12 34", "GITHUB_APP_ID"),
    ],
)
async def test_a_setting_that_is_missing_or_wrong_is_named(
    rig: AppRig, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Refused, match=says) as refused:
        await rig.create()
    assert "abc" not in str(refused.value)


async def test_another_key_is_refused(rig: AppRig, monkeypatch: pytest.MonkeyPatch) -> None:
    other = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    monkeypatch.setenv("GITHUB_APP_PRIVATE_KEY", pem(other))
    with pytest.raises(Refused):
        await rig.create(BODY)
    assert rig.app_world.issued == [] and github.create_issue_comment.credential == "GITHUB_TOKEN"
