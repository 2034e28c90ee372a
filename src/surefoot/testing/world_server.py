"""The World over real sockets: in this process, or as a process of its own.

    python -m surefoot.testing.world_server --port 0 --repo acme/app --pull 128 --log world.jsonl --port-file port

Besides GitHub's endpoints it has a control side under /_world/, which is neither logged nor hit by faults:
GET state, GET log?after=N, GET effects?key=K, POST faults (a rule or a list of rules), DELETE faults, POST change
({"action", "arguments"}; see CHANGES in github_hub.py).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from surefoot.testing.faults import Rule
from surefoot.testing.github_state import Account, Comment, Repo
from surefoot.testing.sockets import HttpServer, serve_until_told
from surefoot.testing.wire import LogEntry, Outcome, Reply, WireRequest, encode_entries, json_reply
from surefoot.testing.world import BOT, TOKEN, World

CONTROL = "/_world/"


class WorldServer(HttpServer):
    """Serves a World on 127.0.0.1: `async with WorldServer(world) as url`.

    `log_file` gets every log entry as a JSON line, handed to the operating system before the World goes on, so that it
    survives the process and can be read meanwhile (`wire.read_log`).
    """

    def __init__(
        self,
        world: World,
        *,
        port: int = 0,
        log_file: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(self._serve, port=port, clock=clock)
        self.world = world
        self._now = clock
        self._timer: asyncio.TimerHandle | None = None
        self._log_file = None if log_file is None else LogFile(log_file)
        if self._log_file is not None:
            world.on_log = self._log_file.append
            for entry in world.log:
                world.on_log(entry)

    async def stop(self) -> None:
        """Stop serving; what is still on its way never arrives."""
        if self._timer is not None:
            self._timer.cancel()
        await super().stop()
        if self._log_file is not None:
            self.world.on_log = None
            self._log_file.close()

    async def _serve(self, request: WireRequest) -> Outcome:
        now = self._now()
        if request.path.startswith(CONTROL):
            self.world.due(now)
            self.world.now = now
            return Outcome(0, control(self.world, request), now)
        outcome = self.world.handle(request, now)
        self._arm()
        return outcome

    def _arm(self) -> None:
        """Wake when the next late request arrives."""
        if self._timer is not None:
            self._timer.cancel()
        due = self.world.next_due()
        self._timer = None if due is None else asyncio.get_running_loop().call_later(due - self._now(), self._wake)

    def _wake(self) -> None:
        self.world.due(self._now())
        self._arm()


class LogFile:
    """A log that is appended to a file, one write for each entry."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def append(self, entry: LogEntry) -> None:
        """Write one entry; it is the operating system's when this returns."""
        self._file.write(encode_entries([entry]))

    def close(self) -> None:
        """No entry follows."""
        self._file.close()


def control(world: World, request: WireRequest) -> Reply:
    """The reply of the control side. What it cannot do is answered with 400 and the reason."""
    try:
        match request.method, request.path.removeprefix(CONTROL):
            case "GET", "state":
                return json_reply(200, state_of(world))
            case "GET", "log":
                after = int(request.query.get("after", "0"))
                return json_reply(200, world.log[after:])
            case "GET", "effects":
                return json_reply(200, world.effects(request.query["key"]))
            case "POST", "faults":
                for rule in read_rules(request.body):
                    world.faults.add(rule)
                return json_reply(200, world.faults.rules)
            case "DELETE", "faults":
                world.faults.clear()
                return json_reply(200, [])
            case "POST", "change":
                change = msgspec.json.decode(request.body, type=ChangeRequest)
                world.change(change.action, change.arguments)
                return json_reply(200, state_of(world))
    except (msgspec.DecodeError, ValueError, TypeError, KeyError) as error:
        return json_reply(400, {"message": f"{type(error).__name__}: {error}"})
    return json_reply(404, {"message": "no such control; see surefoot.testing.world_server"})


class ChangeRequest(msgspec.Struct, frozen=True):
    """The body of POST /_world/change."""

    action: str
    arguments: dict[str, object] = {}


class IssueState(msgspec.Struct, frozen=True):
    """One issue in the state."""

    title: str
    comments: list[Comment]
    labels: list[str]
    head_sha: str | None
    reviews: int


class WorldState(msgspec.Struct, frozen=True):
    """The reply of GET /_world/state. `repos` maps "owner/name" to issue number (as text) to issue."""

    now: float
    requests: int
    next_due: float | None
    repos: dict[str, dict[str, IssueState]]
    faults: tuple[Rule, ...]


def state_of(world: World) -> WorldState:
    """What the World holds now."""
    repos = {name: _repo_state(world, repo) for name, repo in world.repos.items()}
    return WorldState(world.now, len(world.requests()), world.next_due(), repos, world.faults.rules)


def _repo_state(world: World, repo: Repo) -> dict[str, IssueState]:
    return {
        str(number): IssueState(
            title=issue.title,
            comments=world.comments(repo.full_name, number),
            labels=issue.labels,
            head_sha=issue.pull.head_sha if issue.pull else None,
            reviews=len(issue.pull.reviews) if issue.pull else 0,
        )
        for number, issue in repo.issues.items()
    }


def read_rules(text: bytes | str) -> list[Rule]:
    """One rule, or a list of rules, from JSON. Raises msgspec.DecodeError or ValidationError."""
    rules = msgspec.json.decode(text, type=Rule | list[Rule])
    return rules if isinstance(rules, list) else [rules]


def build(arguments: argparse.Namespace) -> World:
    """The World that the command line describes."""
    accounts = {token: _account(index, login) for index, (token, login) in enumerate(arguments.token)}
    world = World(
        now=time.time(),
        accounts=accounts or {TOKEN: BOT},
        rules=[rule for text in arguments.faults for rule in read_rules(text)],
        search_lag_seconds=arguments.search_lag_seconds,
        deletion_events=arguments.deletion_events,
        rate_limit=arguments.rate_limit,
    )
    world.add_repo(arguments.repo)
    for number in arguments.pull:
        world.add_pull(arguments.repo, number, title=arguments.title, body=arguments.body, **_diff(arguments.diff))
    for number in arguments.issue:
        world.add_issue(arguments.repo, number, title=arguments.title, body=arguments.body)
    for number in [*arguments.pull, *arguments.issue]:
        world.add_comments(arguments.repo, number, arguments.comments)
    return world


def _account(index: int, login: str) -> Account:
    return BOT if login == BOT.login else Account(login, 41_000_100 + index)


def _diff(path: Path | None) -> dict[str, str]:
    return {} if path is None else {"diff": path.read_text(encoding="utf-8")}


def _pair(text: str) -> tuple[str, str]:
    token, separator, login = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError("a token is given as TOKEN=LOGIN")
    return token, login


def parser() -> argparse.ArgumentParser:
    """The command line of the process."""
    made = argparse.ArgumentParser(prog="python -m surefoot.testing.world_server", description="A double of GitHub.")
    made.add_argument("--port", type=int, default=0, help="0 takes any free port")
    made.add_argument("--port-file", type=Path, help="gets the port once connections are accepted")
    made.add_argument("--log", type=Path, help="gets every log entry as a JSON line")
    made.add_argument("--repo", default="acme/app")
    made.add_argument("--pull", type=int, action="append", default=[], help="a pull request; may be repeated")
    made.add_argument("--issue", type=int, action="append", default=[], help="an issue; may be repeated")
    made.add_argument("--title", default="A change")
    made.add_argument("--body", default="")
    made.add_argument("--diff", type=Path, help="a unified diff for the pull requests")
    made.add_argument("--comments", type=int, default=0, help="older comments of others on each of them")
    made.add_argument("--token", type=_pair, action="append", default=[], metavar="TOKEN=LOGIN")
    made.add_argument("--faults", action="append", default=[], metavar="JSON", help="a rule or a list of rules")
    made.add_argument("--search-lag-seconds", type=float, default=10.0)
    made.add_argument("--rate-limit", type=int, default=5_000, help="requests an hour of each account")
    made.add_argument("--deletion-events", action="store_true", help="list deleted comments among the events")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    arguments = parser().parse_args(argv)
    server = WorldServer(build(arguments), port=arguments.port, log_file=arguments.log)
    asyncio.run(serve_until_told(server, arguments.port_file))


if __name__ == "__main__":
    main()
