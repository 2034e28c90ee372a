"""API tokens: what one is, what it may do, and whose a given text is. A secret is kept nowhere, only its hash.

    sft_mrswmylvnr2a_01m8mkc4h2yb3rs8hfn14a627s_<52 characters>
        tenant       id                         secret

The tenant stands in the token, so that the look for it begins with the tenant, as every look does. Tokens of the
setting SUREFOOT_TOKENS may be any text of at least 32 characters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from surefoot.core.ids import RANDOM_BYTES, mint
from surefoot.core.state import EffectClass
from surefoot.core.values import clean_text
from surefoot.doors import Clock, Entropy
from surefoot.errors import InvalidInput
from surefoot.store.access import AccessStore, Credential

Kind = Literal["token", "session"]
MARKS: dict[Kind, str] = {"token": "sft", "session": "sfs"}
ACTS = ("read", "start", "approve", "resolve", "evidence", "admin")
"""What a token may do. `approve` alone is for calls whose tool names no permission."""
NARROWED = ("tool", "class", "permission")
SECRET_BYTES = 32
GIVEN_CHARACTERS_MIN = 32
NAME_CHARACTERS_MAX = 200
TOKEN_CHARACTERS_MAX = 1_000
_TOKEN = re.compile(r"(sft|sfs)_([a-z2-7]{1,400})_([0-9a-z]{26})_([a-z2-7]{52})")
_NO_HASH = "0" * 64


class Holder(msgspec.Struct, frozen=True):
    """Whose a token or a session is, and what it may do."""

    tenant: str
    name: str
    permissions: frozenset[str]
    kind: Kind
    credential_id: str
    secret: str = ""
    """For what is derived from a session; never shown, stored or logged."""

    def __repr__(self) -> str:
        return f"Holder({self.tenant!r}, {self.name!r}, {self.kind})"


class Given(msgspec.Struct, frozen=True):
    """A token of the setting SUREFOOT_TOKENS; `secret_hash` is SHA-256 in hex."""

    tenant: str
    name: str
    permissions: tuple[str, ...]
    secret_hash: str

    @property
    def credential_id(self) -> str:
        """Stable while the token is the same: a session that began with it ends with it."""
        return f"given_{self.secret_hash[:26]}"

    def as_holder(self) -> Holder:
        """Whose it is."""
        return Holder(self.tenant, self.name, frozenset(self.permissions), "token", self.credential_id)


def check_permission(word: str) -> str:
    """The word, if it is a permission. Raises InvalidInput (`bad_permission`), naming what there is."""
    act, colon, narrowed = word.partition(":")
    what, equals, value = narrowed.partition("=")
    fits = act in ACTS and not colon
    fits |= act == "approve" and what in NARROWED and bool(equals and value.strip())
    if fits and what == "class":
        fits = value in [effect.value for effect in EffectClass]
    if not fits:
        acts = ", ".join(ACTS)
        raise InvalidInput(
            f"{word!r} is no permission; there are {acts}, and approve:tool=NAME, approve:class=CLASS "
            "(read, idempotent, lookup, opaque), approve:permission=NAME",
            code="bad_permission",
        )
    return word


def hash_of(secret: str) -> str:
    """SHA-256 in hex: enough for a secret of 256 random bits, which nobody can guess from its hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def read_given(text: str, tenant: str) -> tuple[Given, ...]:
    """The tokens of SUREFOOT_TOKENS: entries of three words, separated by `;` or line ends.

        anna read+start+approve 8f0c…; acme/ci start+read sha256:5e88…

    [TENANT/]NAME, permissions joined by +, and the token, or `sha256:` and the hash of it in hex. Without a tenant it
    is `tenant`. Raises InvalidInput (`bad_setting`), which never holds a token.
    """
    entries = [entry.split() for entry in re.split(r"[;\n]", text) if entry.strip()]
    found = tuple(_given(words, number, tenant) for number, words in enumerate(entries, 1))
    if text.strip() and not entries:
        raise InvalidInput("SUREFOOT_TOKENS holds no token; leave it unset to serve without tokens", code="bad_setting")
    if len({given.secret_hash for given in found}) < len(found):
        raise InvalidInput("SUREFOOT_TOKENS: two entries have the same token; give each its own", code="bad_setting")
    return found


def _given(words: Sequence[str], number: int, tenant: str) -> Given:
    def refuse(why: str) -> InvalidInput:
        text = f"SUREFOOT_TOKENS, entry {number}: {why}. An entry is `[TENANT/]NAME PERMISSION+PERMISSION TOKEN`"
        return InvalidInput(text, code="bad_setting")

    if len(words) != 3:
        raise refuse(f"{len(words)} words instead of 3")
    place, slash, name = words[0].rpartition("/")
    secret = words[2]
    if not name or (slash and not place) or len(words[0]) > NAME_CHARACTERS_MAX:
        raise refuse("the name is missing or too long")
    try:
        permissions = tuple(check_permission(word) for word in words[1].split("+"))
    except InvalidInput as problem:
        raise refuse(str(problem)) from None
    if re.fullmatch(r"sha256:[0-9a-f]{64}", secret):
        return Given(place or tenant, name, permissions, secret.removeprefix("sha256:"))
    if len(secret) < GIVEN_CHARACTERS_MIN or secret.startswith("sha256:"):
        raise refuse(f"a token has at least {GIVEN_CHARACTERS_MIN} characters, a hash 64 hexadecimal digits")
    return Given(place or tenant, name, permissions, hash_of(secret))


class Tokens:
    """The tokens of one store and of the setting. Every comparison takes the same time, whatever it finds."""

    def __init__(self, store: AccessStore, clock: Clock, entropy: Entropy, given: Iterable[Given] = ()) -> None:
        self.given = tuple(given)
        self._store = store
        self._clock = clock
        self._entropy = entropy

    async def find(self, text: str, kind: Kind = "token") -> Holder | None:
        """Whose this token (or session) is; None for one that is unknown, revoked or over. Raises StoreError."""
        if not text or len(text) > TOKEN_CHARACTERS_MAX:
            return None
        if kind == "token" and (given := self._find_given(text)) is not None:
            return given
        match = _TOKEN.fullmatch(text)
        tenant = _tenant_in(match[2]) if match and match[1] == MARKS[kind] else None
        if match is None or tenant is None:
            return None
        found = await self._store.credential(tenant, f"{match[1]}_{match[3]}")
        # An unknown id costs what a wrong secret costs.
        right = hmac.compare_digest(hash_of(match[4]), _NO_HASH if found is None else found.secret_hash)
        if found is None or not right or found.kind != kind or not found.usable(self._clock.now().wall):
            return None
        return await self._holder(found, match[4])

    async def _holder(self, found: Credential, secret: str) -> Holder | None:
        if found.kind == "token":
            return Holder(found.tenant_id, found.name, frozenset(found.permissions), "token", found.id)
        permissions = await self._permissions_of(found)
        if permissions is None:
            return None
        return Holder(found.tenant_id, found.name, permissions, "session", found.id, secret)

    async def _permissions_of(self, session: Credential) -> frozenset[str] | None:
        """What a session may do: what its token may do now. None once that token is gone."""
        for given in self.given:
            if given.credential_id == session.parent_id and given.tenant == session.tenant_id:
                return frozenset(given.permissions)
        parent = await self._store.credential(session.tenant_id, session.parent_id or "")
        if parent is None or not parent.usable(self._clock.now().wall):
            return None
        return frozenset(parent.permissions)

    def _find_given(self, text: str) -> Holder | None:
        # All of them are compared, also behind a hit.
        found: Holder | None = None
        hashed = hash_of(text)
        for given in self.given:
            if hmac.compare_digest(hashed, given.secret_hash):
                found = given.as_holder()
        return found

    async def create(
        self, tenant: str, name: str, permissions: Sequence[str], *, expires_s: float | None = None
    ) -> tuple[Credential, str]:
        """A new token: what is kept of it, and its text, which cannot be shown again. Raises InvalidInput."""
        if not name.strip() or len(name) > NAME_CHARACTERS_MAX:
            raise InvalidInput(f"a token has a name of 1 to {NAME_CHARACTERS_MAX} characters: whose decisions it makes")
        if not permissions:
            raise InvalidInput("a token without a permission is of no use; give --permission", code="bad_permission")
        words = tuple(dict.fromkeys(check_permission(word) for word in permissions))
        return await self._create("token", tenant, clean_text(name.strip()), words, None, expires_s)

    async def begin_session(self, holder: Holder, seconds: float) -> tuple[Credential, str]:
        """A session of whoever showed a token; it may what the token may, and ends with it."""
        return await self._create("session", holder.tenant, holder.name, (), holder.credential_id, seconds)

    async def _create(
        self,
        kind: Kind,
        tenant: str,
        name: str,
        permissions: tuple[str, ...],
        parent_id: str | None,
        expires_s: float | None,
    ) -> tuple[Credential, str]:
        wall = self._clock.now().wall
        secret = _coded(self._entropy.token(SECRET_BYTES))
        credential = Credential(
            tenant_id=tenant,
            id=mint(MARKS[kind], wall, self._entropy.token(RANDOM_BYTES)),
            kind=kind,
            name=name,
            secret_hash=hash_of(secret),
            permissions=permissions,
            parent_id=parent_id,
            expires_at=None if expires_s is None else wall + expires_s,
            created_at=wall,
        )
        await self._store.put_credential(credential)
        number = credential.id.removeprefix(MARKS[kind] + "_")
        return credential, f"{MARKS[kind]}_{_coded(tenant.encode())}_{number}_{secret}"

    async def end(self, holder: Holder) -> bool:
        """Revoke it, with the sessions that began with it. False where it had ended, or stands in the setting."""
        return await self._store.revoke_credential(holder.tenant, holder.credential_id)


def _coded(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _tenant_in(coded: str) -> str | None:
    try:
        return base64.b32decode(coded.upper() + "=" * (-len(coded) % 8)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
