"""Secrets by name, and the keyring. Values are read in this process only and are known to redaction from then on."""

from __future__ import annotations

import os

from surefoot.core.marker import Keyring
from surefoot.core.redact import Redactor
from surefoot.doors import Entropy
from surefoot.errors import InvalidInput, StoreUnavailable

SECRET_BYTES = 32
KNOWN_NAMES = (
    "GITHUB_TOKEN",
    "GITHUB_APP_PRIVATE_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "SUREFOOT_SECRET",
    "SUREFOOT_TOKENS",
    "SUREFOOT_ANNOUNCE_URL",
    "SUREFOOT_ANNOUNCE_SECRET",
    "SUREFOOT_EVIDENCE_SECRET",
    "SUREFOOT_GITHUB_WEBHOOK_SECRET",
)
"""Environment variables that are secrets whether or not a tool asks for them."""


class EnvironmentSecrets:
    """Names of secrets are environment variables."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        for name in KNOWN_NAMES:
            self.get(name)

    def __repr__(self) -> str:
        return "EnvironmentSecrets()"

    def get(self, name: str) -> str | None:
        """The variable's value, or None where it is unset or empty."""
        value = os.environ.get(name)
        if value:
            self._redactor.add(name, value)
            for part in _parts(name, value):
                self._redactor.add(name, part)
        return value or None

    def add(self, name: str, value: str) -> None:
        """Know a secret that no variable holds: one from a file, or a token that was issued to us."""
        self._redactor.add(name, value)


def _parts(name: str, value: str) -> list[str]:
    """The secrets inside a setting of several. Names and permissions that stand beside tokens are ordinary words."""
    if name == "SUREFOOT_TOKENS":
        return [word for word in value.replace(";", " ").split() if len(word) >= SECRET_BYTES]
    return [part.strip() for part in value.split(",")] if "," in value else []


def load_keyring(secret: str | None, beside: str | None, entropy: Entropy, redactor: Redactor) -> Keyring:
    """The keyring of SUREFOOT_SECRET; unset, it is made once and kept beside the SQLite file with mode 0600.

    Raises InvalidInput for a text that is too short, or none where there has to be one, StoreUnavailable where the file
    cannot be kept.
    """
    if secret:
        return _known(secret, redactor)
    if beside is None:
        raise InvalidInput(
            "set SUREFOOT_SECRET, the same for every process: this store has no place to keep a keyring beside it",
            code="bad_setting",
        )
    # One file is one store by whatever name it is reached: markers that one process made are ours to the next one.
    path = os.path.realpath(beside) + ".secret"
    try:
        return _known(_read_or_make(path, entropy), redactor)
    except OSError as problem:
        raise StoreUnavailable(
            f"the keyring {path} cannot be read or made ({problem.strerror}); set SUREFOOT_SECRET"
        ) from None


def _known(secret: str, redactor: Redactor) -> Keyring:
    for part in secret.split(","):
        redactor.add("SUREFOOT_SECRET", part.strip())
    return Keyring.parse(secret)


def _read_or_make(path: str, entropy: Entropy) -> str:
    # Written whole under another name and linked: two processes that start at once agree on one keyring.
    if not os.path.exists(path):
        fresh = f"{path}.{entropy.token(8).hex()}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(entropy.token(SECRET_BYTES).hex())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(fresh)
    with open(path, encoding="ascii") as kept:
        return kept.read().strip()
