"""Settings: a flag, else the environment, else `[tool.surefoot]` of the nearest pyproject.toml, else the default."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

import msgspec

from surefoot.core.policy import LEASE_SECONDS_DEFAULT, LEASE_SECONDS_MIN
from surefoot.core.throttle import Throttle, read_throttle
from surefoot.errors import InvalidInput
from surefoot.vocabulary import language_of

STORE_DEFAULT = "sqlite:///surefoot.db"
TENANT_DEFAULT = "default"
CAPACITY = 128
SERVICE_NAMES = ("public_url", "announce_url", "announce_secret", "github_webhook_secret", "evidence_secret")
NAMES = ("store", "tenant", "lease_seconds", "capacity", "throttle", "secret", "tokens", "url", *SERVICE_NAMES)
"""Keys of `[tool.surefoot]`; the environment variable of each is SUREFOOT_ and its name in capitals."""

ON_A_SERVER = ("runs", "actions")
"""Commands that a server does too."""
ON_THE_STORE = ("actions link", "doctor", "prune", "export", "tokens", "db")
"""Commands that only the store does. Those that work (`serve`, `worker`) have a store of their own in any case."""

_RELATIVE_FILE = "sqlite:///"
_ABSOLUTE_FILE = "sqlite:////"


class Settings(msgspec.Struct, frozen=True):
    """What holds for one command."""

    store: str
    tenant: str
    lease_seconds: float
    secret: str | None
    tokens: str | None
    """API tokens, as `surefoot.server.tokens.read_given` reads them."""
    service: Mapping[str, str]
    """What a server is told besides, by the names of SERVICE_NAMES; some of it is secret."""
    language: str
    """Of the display texts: SUREFOOT_LANG, else the locale."""
    capacity: int = CAPACITY
    """Runs that one worker drives at once."""
    throttle: Throttle | None = None
    """What bounds the tool calls of all workers of the tenant."""
    url: str | None = None
    """A server to which runs and actions commands talk; None: to the store."""
    token: str | None = None
    """What it is shown."""
    store_named: bool = False
    """Somebody named the store; False: it is the default."""

    def __repr__(self) -> str:
        return f"Settings(store={self.store!r}, tenant={self.tenant!r})"

    def of_tenant(self, tenant: str) -> Settings:
        """The same for another tenant on the same store."""
        return msgspec.structs.replace(self, tenant=tenant)


def read_settings(flags: Mapping[str, object], environ: Mapping[str, str], folder: Path) -> Settings:
    """The settings of a command that runs in `folder`. Raises InvalidInput, naming where the bad value stands."""
    project, file = _project(folder)

    def given(name: str) -> tuple[str, object] | None:
        """The value with the place that it comes from."""
        variable = f"SUREFOOT_{name.upper()}"
        if flags.get(name) is not None:
            return f"--{name.replace('_', '-')}", flags[name]
        if environ.get(variable):
            return variable, environ[variable]
        return (f"{name} in {file}", project[name]) if name in project else None

    locale = next((environ[n] for n in ("SUREFOOT_LANG", "LC_ALL", "LC_MESSAGES", "LANG") if environ.get(n)), None)
    store = _text(given("store"), STORE_DEFAULT)
    from_file = flags.get("store") is None and not environ.get("SUREFOOT_STORE") and "store" in project
    # A flag says more than what stands in the environment: --store means the store itself.
    url = None if flags.get("store") is not None else _text(given("url"), "") or None
    return Settings(
        store_named=given("store") is not None,
        url=url,
        token=None if url is None else _sendable(_token(flags, environ)),
        store=_beside(store, file) if from_file else store,
        tenant=_text(given("tenant"), TENANT_DEFAULT),
        lease_seconds=_seconds(given("lease_seconds")),
        capacity=_capacity(given("capacity")),
        throttle=_throttle(given("throttle")),
        secret=_text(given("secret"), "") or None,
        tokens=_text(given("tokens"), "") or None,
        service={name: text for name in SERVICE_NAMES if (text := _text(given(name), ""))},
        language=language_of(locale),
    )


def check_place(command: str, flags: Mapping[str, object], settings: Settings) -> None:
    """Raises InvalidInput (`wrong_use`) where a command would drop what it is told, or make a store by surprise.

    A setting for a server may come from the environment, where nobody thinks of it.
    """
    if settings.url is None or command.split()[0] not in (*ON_A_SERVER, *ON_THE_STORE):
        return
    if on_a_server(command):
        for name, why in (("by", "its token says whose act it is"), ("tenant", "its token says whose runs")):
            if flags.get(name) is not None:
                raise InvalidInput(
                    f"{command} goes to the server {settings.url}: {why}. Leave --{name} out, or give --store to work "
                    "on the store itself",
                    code="wrong_use",
                )
    elif not settings.store_named:
        raise InvalidInput(
            f"{command} works on the store itself, and SUREFOOT_URL (or `url` in pyproject.toml) names the server "
            f"{settings.url}: run it where the store is, with --store {settings.store}",
            code="wrong_use",
        )


def on_a_server(command: str) -> bool:
    """Whether a server does this; the rest works on the store itself."""
    return command.split()[0] in ON_A_SERVER and command not in ON_THE_STORE


def _token(flags: Mapping[str, object], environ: Mapping[str, str]) -> tuple[str, object] | None:
    """A flag or the environment: a token has no place in a file that is checked in."""
    if flags.get("token") is not None:
        return "--token", flags["token"]
    return ("SUREFOOT_TOKEN", environ["SUREFOOT_TOKEN"]) if environ.get("SUREFOOT_TOKEN") else None


def _sendable(found: tuple[str, object] | None) -> str | None:
    text = _text(found, "")
    if not (text.isascii() and (text.isprintable() or not text)):
        raise InvalidInput(f"{found[0] if found else 'the token'} holds what no header may hold", code="bad_setting")
    return text or None


def operating_system_user() -> str:
    """Whose decisions those of this process are: the login of its user id, which no environment variable can change."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _text(found: tuple[str, object] | None, default: str) -> str:
    if found is None:
        return default
    place, value = found
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{place} is {value!r}: give a text that is not empty", code="bad_setting")
    return value.strip()


def _seconds(found: tuple[str, object] | None) -> float:
    if found is None:
        return LEASE_SECONDS_DEFAULT
    place, value = found
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = 0.0
    if not LEASE_SECONDS_MIN <= seconds < float("inf"):
        raise InvalidInput(f"{place} is {value!r}: give seconds, at least {LEASE_SECONDS_MIN:g}", code="bad_setting")
    return seconds


def _capacity(found: tuple[str, object] | None) -> int:
    if found is None:
        return CAPACITY
    place, value = found
    if not str(value).isascii() or not str(value).isdigit() or int(str(value)) < 1:
        raise InvalidInput(f"{place} is {value!r}: give how many runs one worker drives at once", code="bad_setting")
    return int(str(value))


def _throttle(found: tuple[str, object] | None) -> Throttle | None:
    if found is None:
        return None
    place, value = found
    try:
        return read_throttle(str(value))
    except InvalidInput as problem:
        raise InvalidInput(f"{place}: {problem}", code="bad_setting") from None


def _beside(store: str, file: Path) -> str:
    """A relative file that pyproject.toml names is beside it, in whatever folder the command runs."""
    if not store.startswith(_RELATIVE_FILE) or store.startswith(_ABSOLUTE_FILE):
        return store
    return f"{_RELATIVE_FILE}{file.parent / store.removeprefix(_RELATIVE_FILE)}"


def _project(folder: Path) -> tuple[Mapping[str, object], Path]:
    """`[tool.surefoot]` of the nearest pyproject.toml, and that file."""
    nearest = next((f for at in (folder, *folder.parents) if (f := at / "pyproject.toml").is_file()), None)
    if nearest is None:
        return {}, folder / "pyproject.toml"
    table = _table(nearest)
    unknown = sorted(set(table) - set(NAMES))
    if unknown:
        raise InvalidInput(
            f"{nearest}: [tool.surefoot] has {', '.join(unknown)}; it takes {', '.join(NAMES)}", code="bad_setting"
        )
    return table, nearest


def _table(file: Path) -> Mapping[str, object]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"{file} cannot be read: {problem}", code="bad_setting") from None
    # Reading TOML is slow to load, and a rescue must start fast: most projects have no such table.
    return _parsed(text, file) if "surefoot" in text.lower() else {}


def _parsed(text: str, file: Path) -> Mapping[str, object]:
    import tomllib

    try:
        found: object = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidInput(f"{file} is not TOML: {problem}", code="bad_setting") from None
    tool = found.get("tool", {}) if isinstance(found, dict) else {}
    tables = {str(name): table for name, table in tool.items()} if isinstance(tool, dict) else {}
    misplaced = [f"[{name}]" for name in found if name.lower() == "surefoot"] if isinstance(found, dict) else []
    misplaced += [f"[tool.{name}]" for name in tables if name.lower() == "surefoot" and name != "surefoot"]
    table = tables.get("surefoot", {})
    if misplaced or not isinstance(table, dict):
        what = f"has {misplaced[0]}" if misplaced else f"has {table!r:.60} there"
        raise InvalidInput(f"{file} {what}; settings stand in the table [tool.surefoot]", code="bad_setting")
    return {str(k): v for k, v in table.items()}
