"""What a program's own log and model do is no reason to stop driving runs, or to leave a store open."""

from __future__ import annotations

import pytest

from surefoot import Agent, Surefoot
from surefoot.agent.model import ModelRequest, ModelResponse
from surefoot.errors import StoreUnavailable


class Moody:
    """Fails once in a way that nobody knows, then answers."""

    name = "moody"

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the second time."""
        self.asked += 1
        if self.asked == 1:
            raise KeyError("what nobody knows")
        return ModelResponse("Fine.")


@pytest.mark.parametrize("problem", [RuntimeError("the handler is broken"), BlockingIOError(), KeyError("line")])
async def test_a_log_that_fails_stops_no_run(store_url: str, problem: Exception) -> None:
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        raise problem

    model = Moody()
    async with Surefoot(store_url, [Agent("moody", model)], worker=True, log=log) as sf:
        run = await sf.wait((await sf.start("moody", "Go.")).id, timeout=20)
    assert (run.status, model.asked) == ("completed", 2)
    assert len(lines) == 1 and "KeyError" in lines[0]


class Open(Moody):
    """Cannot be closed."""

    async def aclose(self) -> None:
        """Fail."""
        raise RuntimeError("it stays open")


async def test_a_model_that_cannot_be_closed_leaves_no_store_open(store_url: str) -> None:
    lines: list[str] = []
    async with Surefoot(store_url, [Agent("moody", Open())], worker=True, log=lines.append) as sf:
        store = sf.store
        await sf.wait((await sf.start("moody", "Go.")).id, timeout=20)
    assert any("closing the model moody failed" in line for line in lines)
    with pytest.raises(StoreUnavailable, match="is closed"):
        await store.run_ids(sf.tenant)
