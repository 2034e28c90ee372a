"""What a server is told about the world around it: its public address, hooks, and the secrets of what comes in."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from surefoot.errors import InvalidInput
from surefoot.server.signatures import SECRET_BYTES_MIN, is_secret


class Options(msgspec.Struct, frozen=True):
    """Settings of the service. A setting that is None turns its part off. Never shows a secret."""

    public_url: str | None = None
    """Where people reach the server, for the links in announcements: https://agents.example."""
    announce_url: str | None = None
    """Waiting actions are announced there. A URL may hold a secret of its own: it is never logged."""
    announce_secrets: tuple[str, ...] = ()
    """The first signs announcements."""
    github_secrets: tuple[str, ...] = ()
    """Any of them may have signed a webhook of GitHub's."""
    evidence_secrets: tuple[str, ...] = ()
    """Any of them may have signed evidence."""

    def check(self) -> Options:
        """Itself, if it can be used. Raises InvalidInput (`bad_setting`), which holds no URL: it may be a secret."""
        for name, url in (("PUBLIC", self.public_url), ("ANNOUNCE", self.announce_url)):
            parts = urlsplit(url or "http://x")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                why = f"SUREFOOT_{name}_URL begins with http:// or https:// and a host"
                raise InvalidInput(why, code="bad_setting")
        for name, secrets in (
            ("ANNOUNCE", self.announce_secrets),
            ("GITHUB_WEBHOOK", self.github_secrets),
            ("EVIDENCE", self.evidence_secrets),
        ):
            if any(not is_secret(secret) for secret in secrets):
                raise InvalidInput(
                    f"SUREFOOT_{name}_SECRET: a secret has at least {SECRET_BYTES_MIN} bytes, and what begins with "
                    "whsec_ is base64: with a shorter one anybody could sign",
                    code="bad_setting",
                )
        if self.announce_url and not self.announce_secrets:
            raise InvalidInput(
                "announcements are signed: set SUREFOOT_ANNOUNCE_SECRET, and check it where they arrive",
                code="bad_setting",
            )
        return self

    def __repr__(self) -> str:
        on = [name for name in self.__struct_fields__ if getattr(self, name)]
        return f"Options({', '.join(on)})"


def secrets_of(text: str | None) -> tuple[str, ...]:
    """Secrets that are separated by commas: the new one first, the old one until nobody signs with it any more."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
