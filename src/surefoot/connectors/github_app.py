"""Tokens of GitHub Apps: the app's private key signs a short note, and GitHub gives an installation's token for it.

GITHUB_APP_ID, GITHUB_APP_INSTALLATION_ID and GITHUB_APP_PRIVATE_KEY (PEM), or GITHUB_APP_PRIVATE_KEY_FILE, take the
place of GITHUB_TOKEN. A token lasts an hour; it is kept in this process and asked for anew 5 minutes before its end.
Key and token are known to redaction. Needs the extra `surefoot[github-app]` (cryptography), loaded with the first one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from datetime import datetime
from pathlib import Path

import msgspec

from surefoot.effects import Operation, Refused
from surefoot.http import client

APP_ID = "GITHUB_APP_ID"
INSTALLATION_ID = "GITHUB_APP_INSTALLATION_ID"
PRIVATE_KEY = "GITHUB_APP_PRIVATE_KEY"
PRIVATE_KEY_FILE = "GITHUB_APP_PRIVATE_KEY_FILE"

TOKEN_SECONDS_LEFT_MIN = 300.0
"""A token with less left is not used any more: a call must be able to end under it."""
NOTE_SECONDS_MAX = 540
"""How long the signed note holds; GitHub takes 600 at most."""
CLOCK_SECONDS = 60
"""The note is dated back by so much: GitHub refuses one from the future, and clocks differ."""


class App(msgspec.Struct, frozen=True):
    """An installation of an app, as configured. Its repr holds no key."""

    id: str
    installation_id: str
    key: str

    def __repr__(self) -> str:
        return f"App({self.id}, installation {self.installation_id})"

    @property
    def name(self) -> str:
        """What tokens and the account are remembered under."""
        return f"{self.id}:{self.installation_id}:{hashlib.sha256(self.key.encode()).hexdigest()}"


class _Token(msgspec.Struct, frozen=True):
    value: str
    until: float
    """Wall clock, seconds."""

    def __repr__(self) -> str:
        return f"_Token(until {self.until})"


_tokens: dict[tuple[str, str], _Token] = {}


def configured_app(op: Operation) -> App | None:
    """The app of the environment, or None where none is named. Raises Refused where only a part of it is there."""
    app_id = os.environ.get(APP_ID, "").strip()
    if not app_id:
        return None
    installation = os.environ.get(INSTALLATION_ID, "").strip()
    key = _private_key(op)
    if not app_id.isdecimal() and not app_id.isalnum():
        raise Refused(f"{APP_ID} is the app's id or client id")
    if not installation.isdecimal() or not key:
        raise Refused(f"{APP_ID} is set: set {INSTALLATION_ID} (a number) and {PRIVATE_KEY} or {PRIVATE_KEY_FILE} too")
    return App(app_id, installation, key)


async def installation_token(op: Operation, api_url: str, app: App) -> tuple[str, bool]:
    """A token that is good for 5 minutes at least, and whether it was kept from an earlier call: then it may have been
    revoked meanwhile. Raises Refused or NotSent, as before an effect.
    """
    token, now = _tokens.get((api_url, app.name)), op._door.clock.now().wall
    kept = token is not None and token.until - now >= TOKEN_SECONDS_LEFT_MIN
    if token is None or not kept:
        token = _tokens[api_url, app.name] = await _issue(op, api_url, app, now)
    op.know_secret("GITHUB_APP_TOKEN", token.value)
    return token.value, kept


async def app_slug(op: Operation, api_url: str, app: App) -> str:
    """The app's name in URLs; its account is `<slug>[bot]`. Raises as `installation_token` does."""
    note = _note(op, app, op._door.clock.now().wall)
    async with client(op, base_url=api_url, headers=note) as http:
        value = (await http.get("/app", reading=True)).json()
    slug = value.get("slug") if isinstance(value, dict) else None
    if not isinstance(slug, str) or not slug:
        raise Refused("GitHub does not say what the app is called", retry_after=60.0)
    return slug


def forget(api_url: str, app: App) -> None:
    """The token was refused: the next call asks for another one."""
    _tokens.pop((api_url, app.name), None)


async def _issue(op: Operation, api_url: str, app: App, now: float) -> _Token:
    path = f"/app/installations/{app.installation_id}/access_tokens"
    async with client(op, base_url=api_url, headers=_note(op, app, now)) as http:
        # A token that is issued and lost changes nothing for anybody: this is a reading, whatever its method.
        value = (await http.post(path, json={}, reading=True)).json()
    token = value.get("token") if isinstance(value, dict) else None
    ends = value.get("expires_at") if isinstance(value, dict) else None
    if not isinstance(token, str) or not token or not isinstance(ends, str):
        raise Refused("GitHub answered without a token for the installation", retry_after=60.0)
    op.know_secret("GITHUB_APP_TOKEN", token)
    try:
        return _Token(token, datetime.fromisoformat(ends).timestamp())
    except ValueError:
        return _Token(token, now)  # used once, and asked for anew


def _note(op: Operation, app: App, now: float) -> dict[str, str]:
    """The headers of a request as the app itself: a note of a few minutes, signed with its key (a JWT, RS256)."""
    claims = {"iat": int(now) - CLOCK_SECONDS, "exp": int(now) + NOTE_SECONDS_MAX, "iss": app.id}
    head = f"{_coded({'alg': 'RS256', 'typ': 'JWT'})}.{_coded(claims)}"
    note = f"{head}.{_base64(_sign(app.key, head.encode()))}"
    op.know_secret("GITHUB_APP_JWT", note)
    return {"Authorization": f"Bearer {note}", "Accept": "application/vnd.github+json"}


def _sign(key: str, data: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise Refused("tokens of GitHub Apps need the extra: pip install surefoot[github-app]") from None
    try:
        private = load_pem_private_key(key.encode(), password=None)
    except (ValueError, TypeError):
        # Without the library's text: it may quote the key.
        raise Refused(f"{PRIVATE_KEY} is no private key in PEM form without a password") from None
    if not isinstance(private, rsa.RSAPrivateKey):
        raise Refused(f"{PRIVATE_KEY} is no RSA key: take the one that GitHub made for the app")
    return private.sign(data, padding.PKCS1v15(), hashes.SHA256())


def _private_key(op: Operation) -> str:
    key = (op.secret(PRIVATE_KEY) or "").strip()
    path = os.environ.get(PRIVATE_KEY_FILE, "").strip()
    if not key and path:
        try:
            key = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            raise Refused(f"the file of {PRIVATE_KEY_FILE} cannot be read") from None
        op.know_secret(PRIVATE_KEY, key)
    # Settings of one line write line ends as \n.
    return key.replace("\\n", "\n") if "\n" not in key else key


def _coded(value: dict[str, object]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
