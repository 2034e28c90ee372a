"""Large texts in less room: what goes in comes out, and what is damaged is an error, however it was damaged."""

from __future__ import annotations

import contextlib
import sqlite3
import tracemalloc
import zlib
from base64 import b64encode
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, strategies as st

from surefoot.core import events as ev
from surefoot.core.payloads import MessageBody, StepView
from surefoot.errors import InvalidInput, Unreadable
from surefoot.store.packing import (
    LARGE_BYTES_MIN,
    MARK,
    PACKED_BYTES_MAX,
    PACKED_BYTES_MIN,
    for_blob,
    for_text,
    packed,
    unpacked,
)
from tests.places import Place
from tests.store.build import TENANT, Story, noise
from tests.store.conftest import SqliteBench

KEEPS = pytest.mark.parametrize("keep", [for_blob, for_text])
Keep = Callable[[bytes], str | bytes]
WORDS = b'{"body":"' + b"Looks good to me. " * 80 + b'"}'


@KEEPS
@given(text=st.text(), times=st.integers(1, 2_000))
def test_every_text_comes_back(keep: Keep, text: str, times: int) -> None:
    body = f'"{text * times}"'.encode()
    assert unpacked(keep(body), "it") == body.decode()


@KEEPS
@pytest.mark.parametrize(
    "size", [PACKED_BYTES_MIN - 1, PACKED_BYTES_MIN, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, 200_000]
)
def test_it_is_packed_where_that_pays(keep: Keep, size: int) -> None:
    words, hard = WORDS * (1 + size // len(WORDS)), noise(size)
    kept = keep(words[:size])
    assert unpacked(kept, "it") == words[:size].decode()
    assert (len(kept) < size * 3 // 4) is (size >= PACKED_BYTES_MIN)
    assert keep(hard) == hard.decode(), "what would not be smaller stays as it is"


@KEEPS
def test_what_is_no_utf8_is_refused_and_not_packed(keep: Keep) -> None:
    with pytest.raises(UnicodeDecodeError):
        keep(WORDS + b"\xff")


def test_what_is_too_long_to_be_unpacked_is_not_packed() -> None:
    assert packed(b"x" * PACKED_BYTES_MAX) is not None
    assert packed(b"x" * (PACKED_BYTES_MAX + 1)) is None


@KEEPS
def test_c044_every_cut_and_nearly_every_flip_is_an_error(keep: Keep) -> None:
    kept = keep(WORDS)
    for end in range(1, len(kept)):
        with pytest.raises(Unreadable):
            unpacked(kept[:end], "it")
    random = Random(44)
    for _ in range(300):
        damaged = bytearray(kept.encode() if isinstance(kept, str) else kept)
        damaged[random.randrange(1, len(damaged))] ^= 1 << random.randrange(7)
        value = bytes(damaged) if isinstance(kept, bytes) else damaged.decode("ascii")
        with contextlib.suppress(Unreadable):
            assert unpacked(value, "it") == WORDS.decode(), "the last bits of base64 stand for nothing"
    with pytest.raises(Unreadable):
        unpacked(kept + b"xxxx" if isinstance(kept, bytes) else kept + "xxxx", "it")


def test_a_few_bytes_that_would_be_gigabytes_do_not_fill_the_memory() -> None:
    deflater = zlib.compressobj(9)
    bomb = b"".join(deflater.compress(b" " * (1 << 20)) for _ in range(256)) + deflater.flush()
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    for value in (bomb, MARK + b64encode(bomb).decode()):
        with pytest.raises(Unreadable):
            unpacked(value, "it")
    assert tracemalloc.get_traced_memory()[1] < 4 * PACKED_BYTES_MAX
    tracemalloc.stop()


async def _stored(story: Story, text: bytes) -> None:
    message = f"msg_{story.number}"
    await story.append(ev.MessageAppended(message, "user", 0), payloads=[MessageBody(message, text)])
    await story.append(story.created(), payloads=[StepView(story.step_id(1), text, text)])


@pytest.mark.sqlite_only("columns of PostgreSQL have one type")
async def test_small_texts_can_be_read_in_a_shell_and_large_ones_are_blobs(bench: SqliteBench) -> None:
    store = await bench.open()
    for number, (text, kind) in enumerate([(b'{"body":"hello"}', "text"), (WORDS, "blob"), (noise(5_000), "text")], 1):
        story = await Story.begin(store, number)
        await _stored(story, text)
        with contextlib.closing(sqlite3.connect(bench.path)) as plain, plain:
            kinds = plain.execute(
                "SELECT typeof(safe_input), typeof(safe_output), typeof(body) FROM step"
                " JOIN message ON message.run_id = step.run_id WHERE step.id = ?",
                (story.step_id(1),),
            )
            assert kinds.fetchall() == [(kind, kind, kind)]
        with pytest.raises(InvalidInput):
            await story.append(story.created(2), payloads=[StepView(story.step_id(2), WORDS + b"\xff")])


async def test_c044_a_damaged_text_is_an_error_and_a_secret_in_one_is_found(place: Place) -> None:
    from surefoot.http import system_doors
    from surefoot.store.open import open_store

    store = await open_store(place.url, system_doors())
    try:
        story = await Story.begin(store)
        await _stored(story, WORDS.replace(b"good", b"t0psecret", 1))
        assert any(b"t0psecret" in held for held in place.held().values()), "packed or not, tests see what is stored"
        assert all(b"t0psecret" not in held for name, held in place.held().items() if name not in ("step", "message"))
        half = "substr({0}, 1, length({0}) / 2)"
        place.execute(f"UPDATE message SET body = {half.format('body')}")
        place.execute(f"UPDATE step SET safe_input = {half.format('safe_input')}")
        with pytest.raises(Unreadable):
            await store.messages(TENANT, story.run.conversation_id)
        with pytest.raises(Unreadable):
            await store.step(TENANT, story.step_id(1))
    finally:
        await store.close()
