"""`surefoot serve` in a process of its own, and plain HTTP against it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from tests.cli.rig import Cli
from tests.places import Place
from tests.support import eventually_sync

JSON = "application/json"
PROBLEM = "application/problem+json"


class Reply(msgspec.Struct, frozen=True):
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def record(self) -> dict[str, object]:
        """The document, an object."""
        found = json.loads(self.body)
        assert isinstance(found, dict), self
        return found

    def items(self) -> list[dict[str, object]]:
        """The items of a page."""
        found = self.record()["items"]
        assert isinstance(found, list), self
        return found

    @property
    def code(self) -> str:
        """The code of the problem that it is."""
        assert self.headers["content-type"] == PROBLEM, self
        problem = self.record()
        assert problem["status"] == self.status, self
        assert {"title", "status", "detail", "code", "type", "details"} == set(problem), self
        return str(problem["code"])


class Web:
    """Requests to one server, a connection each."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = urlsplit(url).netloc

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds_max: float = 30.0,
    ) -> Reply:
        """One request. `body` is sent as JSON, `raw` as it is."""
        sent = dict(headers or {})
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", JSON)
        connection = http.client.HTTPConnection(self.host, timeout=seconds_max)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        """GET with headers, `_` for `-` in their names."""
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def start(self, agent: str, text: str = "Go", *, key: str | None = None, **more: object) -> Reply:
        """POST /v1/runs; the key is made of the agent's name unless one is given."""
        body = {"agent": agent, "input": text, **more}
        return self.ask("POST", "/v1/runs", body, headers={"Idempotency-Key": key or f"key-of-{agent}"})

    def decide(self, action_id: str, decision: str, *, key: str | None = None, **more: object) -> Reply:
        """POST a decision."""
        headers = {} if key is None else {"Idempotency-Key": key}
        body = {"decision": decision, **more}
        return self.ask("POST", f"/v1/pending-actions/{action_id}/decision", body, headers=headers)

    def status(self, run_id: str) -> str:
        """The state of a run."""
        return str(self.get(f"/v1/runs/{run_id}").record()["status"])

    def until(self, run_id: str, *statuses: str) -> None:
        """Wait until the run has one of these states."""
        eventually_sync(lambda: self.status(run_id) in statuses, f"{run_id} to be {statuses}", seconds_max=30)

    def asked(self, agent: str, key: str | None = None) -> tuple[str, str]:
        """A run of `agent` that waits for a person: the ids of the run and of the question."""
        run_id = str(self.start(agent, key=key).record()["id"])
        return run_id, self.question(run_id)

    def question(self, run_id: str) -> str:
        """The one question of a run, once it is asked."""

        def waiting() -> list[dict[str, object]]:
            return self.get(f"/v1/pending-actions?status=waiting&run_id={run_id}").items()

        found = eventually_sync(waiting, "a question", seconds_max=30)
        assert len(found) == 1, found
        return str(found[0]["id"])


class Served(Web):
    """A server process."""

    def __init__(
        self, cli: Cli, *words: str, port: int = 0, more: Mapping[str, str] | None = None, file: str = "agents.py"
    ) -> None:
        self.cli = cli
        self.folder = cli.folder
        self.log = cli.folder / f"serve-{os.urandom(4).hex()}.log"
        command = cli.command("serve", file, "--port", str(port), *words)
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=cli.folder, env={**cli.environment, **(more or {})}, stdout=subprocess.PIPE, stderr=errors
            )
        super().__init__(eventually_sync(self._listens, "the server to listen", seconds_max=60))
        eventually_sync(self._answers, "the server to answer", seconds_max=60)

    def _listens(self) -> str:
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r"(?:^|\")serving (http://\S+) ", self.log.read_text(), re.MULTILINE)
        return found[1] if found else ""

    def _answers(self) -> bool:
        try:
            return self.get("/healthz").status == 200
        except OSError:
            return False

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.host.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self, number: signal.Signals = signal.SIGTERM, seconds_max: float = 30) -> tuple[int, str]:
        """Send a signal; the exit code and what it had said on stderr."""
        self.process.send_signal(number)
        self.process.communicate(timeout=seconds_max)
        return self.process.returncode, self.log.read_text()


@contextmanager
def serving(place: Place, *words: str, port: int = 0, more: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A server on the store of a place; it is killed at the end if it lives."""
    served = Served(Cli(place), *words, port=port, more=more)
    try:
        yield served
    finally:
        served.kill()
