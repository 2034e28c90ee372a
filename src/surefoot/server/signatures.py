"""Signatures of webhooks, ours and others': by HMAC-SHA256 over the raw body, compared in constant time.

What we send, and what POST /v1/evidence takes, is signed as Standard Webhooks says (standardwebhooks.com):

    webhook-id: act_…                       the same with every repeat
    webhook-timestamp: 1790000000           seconds since 1970
    webhook-signature: v1,<base64 of HMAC-SHA256(secret, "id.timestamp.body")> v1,…

A secret is used as it is, or decoded where it is written `whsec_<base64>`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping

import msgspec

SECONDS_OFF_MAX = 300.0
"""A signed request that is older, or that much of the future, is refused: it may be a repeat of an old one."""
SIGNATURES_MAX = 10
ID_CHARACTERS_MAX = 256
SECRET_BYTES_MIN = 16
"""Whoever can guess what signs can say that anything happened."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a signature does not count; `code` is stable."""

    code: str
    text: str


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers for `body`."""
    signature = base64.b64encode(_mac(key_of(secret), message_id, str(timestamp), body)).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{signature}"}


def check(secrets: Iterable[str], headers: Mapping[str, str], body: bytes, now: float) -> Refusal | None:
    """None where any of the secrets has signed this body within SECONDS_OFF_MAX. Header names are in lower case."""
    message_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "").split()[:SIGNATURES_MAX]
    if not message_id or len(message_id) > ID_CHARACTERS_MAX or not given:
        return Refusal(
            "bad_signature", "send the three headers of standardwebhooks.com: webhook-id, -timestamp, -signature"
        )
    signatures = [part.removeprefix("v1,") for part in given if part.startswith("v1,")]
    fits = False
    for secret in secrets:
        expected = base64.b64encode(_mac(key_of(secret), message_id, stamp, body))
        for signature in signatures:
            fits |= hmac.compare_digest(expected, signature.encode("utf-8", "surrogatepass"))
    if not fits:
        return Refusal("bad_signature", "no secret of this server has signed this body")
    if not (stamp.isascii() and stamp.isdigit()) or abs(int(stamp[:15]) - now) > SECONDS_OFF_MAX:
        return Refusal("old_signature", f"webhook-timestamp is more than {SECONDS_OFF_MAX:.0f} s off; sign again")
    return None


def github_signed(secrets: Iterable[str], header: str, body: bytes) -> bool:
    """Whether X-Hub-Signature-256 is that of `body` under any of the secrets."""
    given = header.strip().encode("utf-8", "surrogatepass")
    fits = False
    for secret in secrets:
        expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        fits |= hmac.compare_digest(expected.encode(), given)
    return fits


def key_of(secret: str) -> bytes:
    """The bytes that sign."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            return secret.encode()
    return secret.encode()


def is_secret(secret: str) -> bool:
    """Whether something may be signed with it."""
    coded = secret.startswith("whsec_")
    return len(key_of(secret)) >= SECRET_BYTES_MIN and not (coded and key_of(secret) == secret.encode())


def _mac(key: bytes, message_id: str, stamp: str, body: bytes) -> bytes:
    signed = f"{message_id}.{stamp}.".encode("utf-8", "surrogatepass") + body
    return hmac.new(key, signed, hashlib.sha256).digest()
