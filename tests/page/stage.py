"""What the page's tests play on: a double of GitHub and `surefoot serve`, both processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from surefoot.testing.world import BOT, TOKEN
from tests.cli.rig import SOURCE, Cli
from tests.places import Place
from tests.server.rig import Served
from tests.support import eventually_sync

ROOT = Path(__file__).parents[2]


class Stage:
    """A folder with the agents of agents.py, a World, and a server that can be killed and started again."""

    def __init__(self, place: Place, tokens: str = "") -> None:
        self.folder = folder = place.folder
        self.cli = Cli(place)
        shutil.copy(Path(__file__).with_name("agents.py"), folder / "agents.py")
        port = folder / "world-port"
        self._world = subprocess.Popen(
            [sys.executable, "-m", "surefoot.testing.world_server", "--port", "0", "--port-file", str(port),
             "--pull", "128", "--title", "Retry only what is safe", "--comments", "2",
             "--token", f"{TOKEN}={BOT.login}"],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
        try:
            eventually_sync(lambda: port.exists() and port.read_text().strip(), "the World to listen", seconds_max=60)
            self.world = f"http://127.0.0.1:{port.read_text().strip()}"
            self._more = {"GITHUB_API_URL": self.world, "GITHUB_TOKEN": TOKEN, "SUREFOOT_TOKENS": tokens}
            self.served = Served(self.cli, more=self._more)
        except BaseException:
            self._end_world()
            raise

    @property
    def url(self) -> str:
        """Where the page is."""
        return self.served.url

    @property
    def sent(self) -> list[str]:
        """What the tools of agents.py wrote: a key and a text in each line."""
        return self.cli.sent

    def kill(self) -> None:
        """SIGKILL."""
        self.served.kill()

    def serve_again(self) -> None:
        """Another process on the same store and port."""
        self.served = Served(self.cli, port=self.served.port, more=self._more)

    def open_gate(self, name: str) -> None:
        """Let a tool or a model go on."""
        (self.folder / name).touch()

    def close_gate(self, name: str) -> None:
        """Hold it again."""
        (self.folder / name).unlink(missing_ok=True)

    def start(self, agent: str, text: str = "Review acme/app#128", **metadata: str) -> str:
        """A new run's id."""
        made = self.served.start(agent, text, key=os.urandom(8).hex(), metadata=dict(metadata))
        assert made.status == 201, made
        return str(made.record()["id"])

    def run(self, run_id: str) -> Mapping[str, object]:
        """The snapshot."""
        return self.served.get(f"/v1/runs/{run_id}").record()

    def asked(self, agent: str, **metadata: str) -> tuple[str, str]:
        """A run that waits for a person: its id and that of the question."""
        run_id = self.start(agent, **metadata)
        return run_id, self.served.question(run_id)

    def action(self, action_id: str) -> Mapping[str, object]:
        """One question."""
        return self.served.get(f"/v1/pending-actions/{action_id}").record()

    def stored_events(self, run_id: str) -> list[int]:
        """The sequences of all events of a run."""
        return [int(str(event["sequence"])) for event in self.served.get(f"/v1/runs/{run_id}/events").items()]

    def comments(self) -> list[str]:
        """The bodies of the comments that our account has on GitHub."""
        with urllib.request.urlopen(f"{self.world}/_world/state") as reply:
            state = json.loads(reply.read())
        listed = state["repos"]["acme/app"]["128"]["comments"]
        return [str(comment["body"]) for comment in listed if comment["author"]["id"] == BOT.id]

    def close(self) -> None:
        """End everything."""
        self.served.kill()
        self._end_world()

    def _end_world(self) -> None:
        self._world.kill()
        self._world.wait()


@contextmanager
def staged(place: Place, tokens: str = "") -> Iterator[Stage]:
    """A stage that is closed at the end."""
    stage = Stage(place, tokens)
    try:
        yield stage
    finally:
        stage.close()
