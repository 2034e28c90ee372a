"""Text as the model writes it: told once, in pieces, without secrets, stored nowhere."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from surefoot import Agent, Surefoot
from surefoot.agent.model import ModelRequest, ModelResponse, ModelRetryable
from surefoot.agent.texts import FRAMES_MAX, Reader, TextFrame, Texts
from surefoot.core.redact import RedactedStream, Redactor
from surefoot.errors import NotFound
from surefoot.testing.model import FakeModel, Step
from tests.support import eventually

WAIT_SECONDS = 30.0
SECRET = "hunter2-hunter2/key"
SAID = "I begin, and then I go on until the end. " * 5


async def _read(sf: Surefoot, run_id: str, frames: list[TextFrame]) -> None:
    async for frame in sf.texts(run_id):
        frames.append(frame)


async def _told(store_url: str, *models: object, script: list[Step] | None = None) -> tuple[list[TextFrame], str]:
    """A run that somebody reads along: its frames, and the text that was committed."""
    agent = Agent("talker", models or [FakeModel(script or [])])  # type: ignore[arg-type]  # models
    # A keyring made at random might begin with any letter, at which a frame would then stop short.
    async with Surefoot(store_url, [agent], secret="~" * 40, log=lambda line: None) as sf:
        sf.redactor.add("KEY", SECRET)
        run = await sf.start("talker", "go")
        frames: list[TextFrame] = []
        reading = asyncio.ensure_future(_read(sf, run.id, frames))
        await eventually(lambda: sf._texts.wanted(run.id))
        sf._claims = True
        await sf._working()
        ended = await sf.wait(run.id, timeout=WAIT_SECONDS)
        await asyncio.wait_for(reading, WAIT_SECONDS)
        assert not sf._texts.wanted(run.id)
        (body,) = [msgspec.json.decode(m.body) for m in await sf.messages(run.id) if m.role == "assistant"]
        assert ended.result == {"text": body["text"]}
    return frames, body["text"]


async def test_frames_put_together_are_the_message_and_end_with_the_run(store_url: str) -> None:
    frames, text = await _told(store_url, script=[SAID])
    assert len(frames) > 10 and "".join(frame.text for frame in frames) == text == SAID
    assert {(frame.attempt, frame.missed) for frame in frames} == {(1, False)}
    assert [frame.over for frame in frames] == [False] * (len(frames) - 1) + [True]


async def test_a_secret_in_pieces_is_neither_told_nor_kept(store_url: str) -> None:
    frames, text = await _told(store_url, script=[f"The key is {SECRET}, keep it."])
    assert "".join(frame.text for frame in frames) == text == "The key is [redacted:KEY], keep it."


class Broken:
    """A model that breaks off its first answer."""

    name = "broken"

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Never asked for: somebody reads along."""
        raise AssertionError("the answer is to be streamed")

    async def stream(self, request: ModelRequest, emit: object) -> ModelResponse:
        """Break off, then answer."""
        assert callable(emit)
        self.asked += 1
        emit("I beg")
        if self.asked == 1:
            raise ModelRetryable("broken off", retry_after=0)
        return ModelResponse("I beg you.")


async def test_an_attempt_that_breaks_off_is_over_and_the_next_has_its_number(store_url: str) -> None:
    model = Broken()
    frames, text = await _told(store_url, model, model)
    assert text == "I beg you."
    assert [(f.attempt, f.text, f.over) for f in frames] == [
        (1, "I beg", False), (1, "", True), (2, "I beg", False), (2, "", True),
    ]  # fmt: skip


async def test_nobody_reads_along_of_a_run_that_there_is_not(store_url: str) -> None:
    async with Surefoot(store_url) as sf:
        with pytest.raises(NotFound):
            await _read(sf, "run_none", [])
        assert not sf._texts.wanted("run_none")


async def test_a_slow_reader_loses_frames_and_is_told(tmp_path: Path) -> None:
    texts, got = Texts(Redactor()), []
    with texts.reading("run") as slow, texts.writing("run", "step", 1) as emit:
        for number in range(FRAMES_MAX + 10):
            emit(f"{number} ")
        while (frame := slow.take()) is not None:
            got.append(frame)
    assert len(got) == FRAMES_MAX and got[0].missed and not any(frame.missed for frame in got[1:])
    assert got[0].text == "10 "
    reader = Reader()
    with pytest.raises(TimeoutError), contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(reader.wait(), 0.01)


_PARTS = st.sampled_from([SECRET, SECRET[:7], SECRET[7:], "hunter2-", "key", " ", "\n", "\\n", "\\", "x", "hun", "é"])


@given(st.lists(_PARTS, max_size=12).map("".join), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_a_stream_in_pieces_is_redacted_as_the_whole_is(text: str, sizes: list[int]) -> None:
    redactor = Redactor({"KEY": SECRET, "OTHER": "hunter2-hun"})
    stream, shown, place, turn = RedactedStream(redactor), "", 0, 0
    while place < len(text):
        size = sizes[turn % len(sizes)]
        shown += stream.feed(text[place : place + size])
        assert redactor.has_known(shown) is None, "what is shown holds no secret at any time"
        place, turn = place + size, turn + 1
    assert shown + stream.end() == redactor.text(text)


def test_text_without_a_secret_hardly_waits() -> None:
    stream = RedactedStream(Redactor({"KEY": SECRET, "LONG": "-----BEGIN KEY-----" + "a1" * 2_000}))
    said, shown = "", ""
    for piece in ("Hello ", "world, ", "hu", "h?", " What?"):
        said, shown = said + piece, shown + stream.feed(piece)
        assert said.startswith(shown) and len(said) - len(shown) < 4
    assert shown + stream.end() == said
    pair = "\U0001f600".encode("utf-16-le", "surrogatepass")
    halves = [pair[:2].decode("utf-16-le", "surrogatepass"), pair[2:].decode("utf-16-le", "surrogatepass")]
    assert [stream.feed(half) for half in halves] == ["", "\U0001f600"]
