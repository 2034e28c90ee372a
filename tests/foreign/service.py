"""The npm package `emulate` as a process: GitHub and Resend as somebody else understands them, and what they hold."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx
import msgspec

from tests.support import eventually_sync

HERE = Path(__file__).parent
PLACE = HERE.parents[1] / "build" / "foreign"
OWNER, TOKEN, REVIEWER_TOKEN = "alice", "tok_alice", "tok_bob"
APP_ID, INSTALLATION_ID, APP_BOT = 1234, 55, "my-app[bot]"
START_SECONDS = 30.0


class Emulate:
    """The process; `github` and `resend` are its addresses."""

    def __init__(self, folder: Path, app_key: str) -> None:
        node = subprocess.run(
            ["bash", str(HERE / "install.sh")], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.split()[-1]
        port = _free_ports()
        seed = folder / "seed.json"
        seed.write_text(json.dumps(_seed(app_key)))
        self.github, self.resend = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        script = PLACE / "node_modules" / "emulate" / "dist" / "index.js"
        words = ["start", "--service", "github,resend", "--port", str(port), "--seed", str(seed)]
        self._log = (folder / "emulate.log").open("w")
        self._process = subprocess.Popen([node, str(script), *words], stdout=self._log, stderr=self._log, cwd=folder)
        try:
            eventually_sync(self._answers, "emulate", seconds_max=START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        assert self._process.poll() is None, "emulate has ended; its log is in the test's folder"
        try:
            return all(httpx.get(url, timeout=1.0).status_code < 500 for url in (f"{self.github}/user", self.resend))
        except httpx.HTTPError:
            return False


class Item(msgspec.Struct):
    """What is read of GitHub's objects."""

    number: int = 0
    id: int = 0
    state: str = ""
    title: str = ""
    body: str | None = None
    name: str = ""
    login: str = ""
    sha: str = ""
    merged: bool = False
    head: Item | None = None
    object: Item | None = None
    user: Item | None = None
    pull_request: dict[str, str] | None = None


class Repository:
    """One repository of its own for a test, with an issue and a pull request that can be merged."""

    def __init__(self, github: str, name: str) -> None:
        self._client = httpx.Client(base_url=github, headers=_as(TOKEN), timeout=10.0)
        self.name = f"{OWNER}/{name}"
        self._path = f"/repos/{self.name}"
        self._ask("POST", "/user/repos", {"name": name, "auto_init": True})
        main = self._ask("GET", f"{self._path}/git/ref/heads/main").object
        assert main is not None
        self._ask("POST", f"{self._path}/git/refs", {"ref": "refs/heads/feature", "sha": main.sha})
        change = {"message": "Handle None", "content": base64.b64encode(b"x").decode(), "branch": "feature"}
        self._ask("PUT", f"{self._path}/contents/a.txt", change)
        pull = self._ask("POST", f"{self._path}/pulls", {"title": "Handle None", "head": "feature", "base": "main"})
        assert pull.head is not None
        self.pull, self.head = pull.number, pull.head.sha
        self.issue = self._ask("POST", f"{self._path}/issues", {"title": "It crashes"}).number

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def comment(self) -> int:
        """A comment to be deleted."""
        return self._ask("POST", f"{self._path}/issues/{self.issue}/comments", {"body": "Twice."}).id

    def review(self) -> int:
        """Somebody else's review, to be dismissed."""
        path = f"{self._path}/pulls/{self.pull}/reviews"
        body = {"body": "No.", "event": "REQUEST_CHANGES"}
        reply = self._client.post(path, json=body, headers=_as(REVIEWER_TOKEN))
        return msgspec.json.decode(reply.raise_for_status().content, type=Item).id

    def comments(self) -> list[str]:
        """The bodies of the issue's comments."""
        return [c.body or "" for c in self._list(f"/issues/{self.issue}/comments")]

    def authors(self) -> list[str]:
        """Who wrote the issue's comments."""
        return [c.user.login for c in self._list(f"/issues/{self.issue}/comments") if c.user is not None]

    def reviews(self) -> list[tuple[str, str]]:
        """State and body of the reviews."""
        return [(r.state, r.body or "") for r in self._list(f"/pulls/{self.pull}/reviews")]

    def issues(self) -> list[str]:
        """The titles of the issues, those that are pull requests aside."""
        return [i.title for i in self._list("/issues?state=all") if i.pull_request is None]

    def labels(self) -> list[str]:
        """The issue's labels."""
        return [label.name for label in self._list(f"/issues/{self.issue}/labels")]

    def state(self) -> str:
        """Whether the issue is open."""
        return self._ask("GET", f"{self._path}/issues/{self.issue}").state

    def merged(self) -> bool:
        """Whether the pull request is."""
        return self._ask("GET", f"{self._path}/pulls/{self.pull}").merged

    def _list(self, path: str) -> list[Item]:
        reply = self._client.get(self._path + path).raise_for_status()
        return msgspec.json.decode(reply.content, type=list[Item])

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Item:
        reply = self._client.request(method, path, json=body).raise_for_status()
        return msgspec.json.decode(reply.content, type=Item)


def _as(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _seed(app_key: str) -> dict[str, object]:
    app = {
        "app_id": APP_ID, "slug": "my-app", "name": "My App", "private_key": app_key,
        "permissions": {"issues": "write", "pull_requests": "write", "contents": "write", "metadata": "read"},
        "installations": [{"installation_id": INSTALLATION_ID, "account": OWNER}],
    }  # fmt: skip
    people = [OWNER, "bob"]
    return {
        "tokens": {f"tok_{login}": {"login": login, "scopes": ["repo", "user"]} for login in people},
        "github": {"users": [{"login": login} for login in people], "apps": [app]},
    }


def _free_ports() -> int:
    """The first of two neighbouring free ports."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
