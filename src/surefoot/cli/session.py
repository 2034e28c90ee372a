"""What commands share: the store opened for one command, and a text that may come from stdin."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterable

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.schedule import Schedule
from surefoot.agent.tools import Tool
from surefoot.app import Surefoot
from surefoot.cli.output import Output
from surefoot.cli.settings import Settings, operating_system_user
from surefoot.errors import InvalidInput, StoreUnavailable, SurefootError
from surefoot.store.open import frozen_url, sqlite_path


def opened(
    settings: Settings,
    out: Output,
    agents: Iterable[Agent] = (),
    tools: Iterable[Tool] = (),
    *,
    schedules: Iterable[Schedule] = (),
    worker: bool = False,
) -> Surefoot:
    """A Surefoot for one command, to be used in `async with`. Without `worker` it reads and decides only."""
    place = sqlite_path(settings.store) if settings.store.startswith("sqlite") else "the database"
    out.looked_in = f"in {place}, tenant {settings.tenant}: check the id, --store and --tenant"
    return Surefoot(
        settings.store,
        agents,
        tools=tools,
        schedules=schedules,
        worker=worker,
        tenant=settings.tenant,
        lease_seconds=settings.lease_seconds,
        capacity=settings.capacity,
        throttle=settings.throttle,
        secret=settings.secret,
        log=out.note,
    )


async def entered(sf: Surefoot, settings: Settings, out: Output) -> Surefoot:
    """`sf` opened, for a command that only reads. Where the disk takes nothing, another that writes nothing at all.

    Raises StoreError, as where the newest commits can be read by writing only.
    """
    try:
        return await sf.__aenter__()
    except StoreUnavailable as problem:
        if not settings.store.startswith("sqlite:///"):
            raise
        frozen = opened(msgspec.structs.replace(settings, store=frozen_url(settings.store)), out)
        try:
            await frozen.__aenter__()
        except SurefootError:
            raise problem from None
        out.note(f"surefoot: {problem}. This is read without writing")
        return frozen


def person(found: argparse.Namespace) -> str:
    """Whose act a command is: --by, else the operating system's user. Raises InvalidInput for an empty name."""
    if found.by is None:
        return operating_system_user()
    name = str(found.by).strip()
    if not name:
        raise InvalidInput("--by names a person; leave it out for the operating system's user", code="wrong_use")
    return name


def place() -> str:
    """From where the decisions of this process come: also where --by names another, it is the login that ran it."""
    return f"the command line: {operating_system_user()} on {platform.node() or 'this machine'}"


def given_text(text: str) -> str:
    """The text of an argument; - reads stdin. Raises InvalidInput for what is not UTF-8."""
    found = sys.stdin.read() if text == "-" else text
    if any("\udc80" <= c <= "\udcff" for c in found):
        raise InvalidInput("the text is not UTF-8; give it as UTF-8", code="wrong_use")
    return found


def given_value(text: str) -> object:
    """The JSON value of an argument; what is not JSON counts as a text; - reads stdin."""
    found = given_text(text)
    try:
        value: object = msgspec.json.decode(found)
    except msgspec.DecodeError:
        return found
    return value
