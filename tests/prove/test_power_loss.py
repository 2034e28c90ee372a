"""A hundred calls: each time the intent was on the disk before its request left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.power import comments_traced, durable_sends
from tests.processes.story import WorldProcess

pytestmark = [
    pytest.mark.prove,
    pytest.mark.real_process,
    pytest.mark.skipif(sys.platform != "linux", reason="system calls are watched by Linux's ptrace"),
]

CALLS = 100


async def test_synced_before_sent_100(
    world: WorldProcess, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    posts, durable = durable_sends(await comments_traced(world, tmp_path, CALLS))
    record_property("figure", f"the log synced before connect and send of the request: {durable} of {posts}")
    assert (posts, durable) == (CALLS, CALLS)
