"""The intent is on the disk before the request leaves; `make prove` looks at a hundred calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.counts.tracer import Line
from tests.processes.power import comments_traced, durable_sends
from tests.processes.story import WorldProcess

pytestmark = [
    pytest.mark.real_process,
    pytest.mark.skipif(sys.platform != "linux", reason="system calls are watched by Linux's ptrace"),
]

CALLS = 5


async def test_synced_before_sent(
    world: WorldProcess, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    posts, durable = durable_sends(await comments_traced(world, tmp_path, CALLS))
    record_property("figure", f"the log synced before connect and send of the request: {durable} of {posts}")
    assert (posts, durable) == (CALLS, CALLS)


def _line(call: str, path: str, tick: int, data: str = "") -> Line:
    return Line(call=call, path=path, data=data, result=0, entered=tick, left=tick)


@pytest.mark.parametrize(
    ("order", "durable"),
    [
        ("write sync connect send", 1),
        ("write connect sync send", 0),
        ("sync write connect send", 0),
        ("write sync connect write send", 0),
        ("sync connect send", 0),
        ("write connect send sync", 0),
    ],
)
def test_a_wrong_order_is_noticed(order: str, durable: int) -> None:
    made = {
        "write": ("pwrite64", "/x/app.db-wal", ""),
        "sync": ("fdatasync", "/x/app.db-wal", ""),
        "connect": ("connect", "socket:[1]", ""),
        "send": ("sendto", "socket:[1]", "POST /x"),
    }
    lines = [_line(made[word][0], made[word][1], tick, made[word][2]) for tick, word in enumerate(order.split())]
    assert durable_sends(lines) == (1, durable)
