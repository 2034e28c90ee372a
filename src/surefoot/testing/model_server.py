"""A model provider over real sockets that says what a script tells it to: OpenAI's two APIs and Anthropic's.

    python -m surefoot.testing.model_server --script script.json --port 0 --port-file port

The script is a JSON list of steps: {"text"?, "calls"?: [{"name", "arguments": object or raw text, "id"?}], "finish"?,
"delay_seconds"?, "thinking"?} is an answer, {"fault": {"status"?, "headers"?, "message"?, "code"?, "body"?,
"hang_seconds"?}} is a fault that stands before the answer that it delays. Which answer comes depends only on the
history in the request, so that a restart on either side changes nothing.

Control side: GET /_model/log, POST /_model/faults (a list of faults for the next requests).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from surefoot.agent.model import ModelResponse, Usage
from surefoot.testing import histories
from surefoot.testing.model import CHARACTERS_PER_TOKEN, call_of, grouped
from surefoot.testing.model_wire import PATHS, Api, answer_reply, check_thinking, error_reply
from surefoot.testing.sockets import HttpServer, serve_until_told
from surefoot.testing.wire import Outcome, Reply, WireRequest, json_reply

CONTROL = "/_model/"


class ServerCall(msgspec.Struct, frozen=True):
    """A tool call of a scripted answer. `id` None: made from its place; "": omitted, as some providers do."""

    name: str
    arguments: dict[str, object] | str = {}
    id: str | None = None


class ServerFault(msgspec.Struct, frozen=True):
    """An error status, or with `hang_seconds` no answer: the connection closes then.

    `code` is the provider's own, such as insufficient_quota. `body` is sent in place of the error that the provider
    would shape; with status 200 it is an odd answer.
    """

    status: int = 500
    headers: dict[str, str] = {}
    message: str = "Simulated error"
    code: str | None = None
    body: str | None = None
    hang_seconds: float | None = None


class ServerStep(msgspec.Struct, frozen=True):
    """One step of a server's script: an answer, or a fault."""

    text: str = ""
    calls: tuple[ServerCall, ...] = ()
    finish: str | None = None
    delay_seconds: float = 0.0
    thinking: str = ""
    """Anthropic only: signed reasoning before the answer, which must come back with the results of its calls."""
    fault: ServerFault | None = None


class ModelLogEntry(msgspec.Struct, frozen=True):
    """One request and its answer. `status` None: never answered. `refusal` is why a history was refused."""

    order: int
    at: float
    api: str
    position: int | None
    status: int | None
    refusal: str | None
    body: msgspec.Raw


class ModelServer(HttpServer):
    """Serves a script: `async with ModelServer(steps) as url`, then OPENAI_BASE_URL is `url` + "/v1".

    `keys` are the API keys that are taken (None: any); others get 401. A history that the provider would refuse gets
    400. `log` keeps every request.
    """

    def __init__(
        self,
        script: Sequence[ServerStep],
        *,
        port: int = 0,
        keys: Collection[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(self._serve, port=port, clock=clock)
        self.log: list[ModelLogEntry] = []
        self.next_faults: list[ServerFault] = []
        self._script = tuple(script)
        self._keys = keys
        self._now = clock
        self._used: Counter[int] = Counter()

    async def _serve(self, request: WireRequest) -> Outcome:
        now = self._now()
        if request.path.startswith(CONTROL):
            return Outcome(0, self._control(request), now)
        api = PATHS.get(request.path)
        if api is None or request.method != "POST":
            return Outcome(0, error_reply("chat", 404, f"Unknown request URL: {request.method} {request.path}"), now)
        outcome, position, refusal = self._answer(api, request, now)
        status = outcome.reply.status if outcome.reply is not None else None
        number = len(self.log) + 1
        self.log.append(ModelLogEntry(number, now, api, position, status, refusal, _raw(request.body)))
        return outcome

    def _answer(self, api: Api, request: WireRequest, now: float) -> tuple[Outcome, int | None, str | None]:
        if not self._known(request.headers):
            return Outcome(0, error_reply(api, 401, "Incorrect API key provided."), now), None, None
        try:
            body = msgspec.json.decode(request.body, type=RequestBody)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Outcome(0, error_reply(api, 400, str(error)), now), None, str(error)
        messages = body.history(api)
        refusal = _VALIDATORS[api](messages) or (check_thinking(messages) if body.thinks else None)
        if refusal is not None:
            return Outcome(0, error_reply(api, 400, refusal), now), None, refusal
        position = histories.turns_of(api, messages)
        return self._perform(api, body, position, len(request.body), now), position, None

    def _perform(self, api: Api, body: RequestBody, position: int, bytes_read: int, now: float) -> Outcome:
        """The next fault or the answer at `position`."""
        step = self._step(position)
        if step is None:
            message = f"the script of {len(self._script)} steps has no answer for position {position}"
            return Outcome(0, error_reply(api, 400, message), now)
        if step.fault is not None:
            if step.fault.hang_seconds is not None:
                return Outcome(0, None, now + step.fault.hang_seconds, "hang")
            return Outcome(0, _fault_reply(api, step.fault), now)
        answer = _response_of(step, position, body.model, bytes_read)
        reply = answer_reply(api, answer, len(self.log) + 1, now, stream=body.stream)
        return Outcome(0, reply, now + step.delay_seconds)

    def _step(self, position: int) -> ServerStep | None:
        if self.next_faults:
            return ServerStep(fault=self.next_faults.pop(0))
        faults, answer = grouped(self._script, lambda step: step.fault is not None, position)
        if self._used[position] < len(faults):
            self._used[position] += 1
            return faults[self._used[position] - 1]
        return answer[0] if answer else None

    def _known(self, headers: Mapping[str, str]) -> bool:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        return bool(key) and (self._keys is None or key in self._keys)

    def _control(self, request: WireRequest) -> Reply:
        match request.method, request.path.removeprefix(CONTROL):
            case "GET", "log":
                return json_reply(200, self.log)
            case "POST", "faults":
                try:
                    self.next_faults += msgspec.json.decode(request.body, type=list[ServerFault])
                except msgspec.DecodeError as error:
                    return json_reply(400, {"message": str(error)})
                return json_reply(200, self.next_faults)
        return json_reply(404, {"message": "no such control; see surefoot.testing.model_server"})


class RequestBody(msgspec.Struct, frozen=True):
    """What the three APIs' requests have in common; the rest is not looked at."""

    model: str
    messages: list[dict[str, object]] = []
    input: list[dict[str, object]] | str = ""
    stream: bool = False
    thinking: dict[str, object] | None = None

    @property
    def thinks(self) -> bool:
        """Extended thinking is on."""
        return self.thinking is not None and self.thinking.get("type") != "disabled"

    def history(self, api: Api) -> list[dict[str, object]]:
        """The messages, or the input items of the responses API."""
        if api != "responses":
            return self.messages
        return [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input


_VALIDATORS: Mapping[Api, Callable[[Sequence[Mapping[str, object]]], str | None]] = {
    "chat": histories.validate_openai,
    "responses": histories.validate_openai_responses,
    "anthropic": histories.validate_anthropic,
}


def _fault_reply(api: Api, fault: ServerFault) -> Reply:
    if fault.body is not None:
        return Reply(fault.status, {"content-type": "application/json"} | fault.headers, fault.body.encode())
    return error_reply(api, fault.status, fault.message, fault.headers, code=fault.code)


def _response_of(step: ServerStep, position: int, model: str, bytes_read: int) -> ModelResponse:
    calls = tuple(
        call_of((c.name, c.arguments) if c.id is None else (c.name, c.arguments, c.id), position, index)
        for index, c in enumerate(step.calls)
    )
    written = len(step.text) + sum(len(call.arguments) for call in calls)
    usage = Usage(bytes_read // CHARACTERS_PER_TOKEN + 1, written // CHARACTERS_PER_TOKEN + 1)
    finish = step.finish or ("tool_calls" if calls else "stop")
    return ModelResponse(step.text, calls, usage, finish, model, step.thinking or None)


def _raw(body: bytes) -> msgspec.Raw:
    """The body for the log; one that is no JSON as a JSON text."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.Raw(msgspec.json.encode(body.decode("utf-8", "backslashreplace")))
    return msgspec.Raw(body)


def read_script(path: Path) -> list[ServerStep]:
    """The steps of a script file. Raises OSError, or msgspec.DecodeError for a wrong one."""
    return msgspec.json.decode(path.read_bytes(), type=list[ServerStep])


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    made = argparse.ArgumentParser(prog="python -m surefoot.testing.model_server", description="A scripted model.")
    made.add_argument("--script", type=Path, required=True, help="a JSON list of steps")
    made.add_argument("--port", type=int, default=0, help="0 takes any free port")
    made.add_argument("--port-file", type=Path, help="gets the port once connections are accepted")
    made.add_argument("--key", action="append", help="an API key that is taken; without any, every key is")
    arguments = made.parse_args(argv)
    server = ModelServer(read_script(arguments.script), port=arguments.port, keys=arguments.key)
    asyncio.run(serve_until_told(server, arguments.port_file))


if __name__ == "__main__":
    main()
