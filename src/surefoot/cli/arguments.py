"""The words of the command line: what each command takes. `--json`, `--store` and `--tenant` may stand in any place."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NoReturn

from surefoot.cli.output import Output
from surefoot.cli.settings import on_a_server
from surefoot.core.state import ActionStatus, RunStatus
from surefoot.errors import InvalidInput

FILE_HELP = "a Python file or module with the agent, or either with :name"
COMMANDS = ("demo", "serve", "worker", "runs", "actions", "tokens", "doctor", "prune", "export", "test", "db")
STORIES = ("founding", "absent", "undetermined", "rejected", "paused")
RUNS_LIMIT = 50
HOST_DEFAULT = "127.0.0.1"
PORT_DEFAULT = 8100
PORT_MAX = 65_535
LINK_HOURS = 24.0
LINK_HOURS_MAX = 8_760.0
KEEP_RUNS_DAYS = 90.0
KEEP_REQUESTS_DAYS = 30.0

EXITS = """\
exit codes:
  0  done
  1  a run that was waited for did not complete; doctor, test: there are findings
  2  wrong use
  3  a run that was waited for waits for a person
  4  the store cannot be reached, or the output cannot be written
  5  refused; the JSON has the code
"""
SETTINGS = """\
settings (flag, else environment, else [tool.surefoot] of the nearest pyproject.toml):
  SUREFOOT_STORE          sqlite:///surefoot.db
  SUREFOOT_TENANT         default
  SUREFOOT_URL            a server that runs and actions commands talk to, instead of the store
  SUREFOOT_TOKEN          what that server is shown (flag and environment only)
  SUREFOOT_LEASE_SECONDS  30
  SUREFOOT_SECRET         keyring; unset, it is made once and kept beside the SQLite file (PostgreSQL needs it set)
  SUREFOOT_TOKENS         API tokens of `surefoot serve`; `surefoot tokens` keeps others in the store
  SUREFOOT_LANG           en or zh-CN; unset, the locale decides
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `wrong_use`, so that they can be printed as JSON too."""

    def print_help(self, file: object = None) -> None:
        """Print it as any output is: argparse says nothing of a help that cannot be written. Raises CannotWrite."""
        Output(as_json=False).line(self.format_help().rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise InvalidInput with the next action."""
        raise InvalidInput(f"{message}; see `{self.prog} --help`", code="wrong_use")


def split_json(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether --json stands anywhere before a `--`, and the other words."""
    end = words.index("--") if "--" in words else len(words)
    rest = [word for word in words[:end] if word != "--json"]
    return len(rest) < end, [*rest, *words[end:]]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command and its values: `command` is for example "runs start". Raises InvalidInput (`wrong_use`)."""
    found = parser().parse_args(list(words))
    found.command = " ".join(filter(None, (found.command, getattr(found, "verb", None))))
    _check_server(found)
    return found


def _check_server(found: argparse.Namespace) -> None:
    """--url goes with what a server does, in whose name the token says."""
    if not hasattr(found, "url"):
        return
    if found.command and not on_a_server(found.command):
        raise InvalidInput(f"{found.command} works on the store itself: leave --url out", code="wrong_use")
    if getattr(found, "store", None) is not None:
        raise InvalidInput("--url and --store do not go together: the server has its own", code="wrong_use")


def parser() -> Parser:
    """The whole command line."""
    common = _common()
    made = Parser(
        prog="surefoot",
        description="Agents whose tools change the outside world, through crashes and lost replies, each action once.",
        epilog=f"{EXITS}\n{SETTINGS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[common],
    )
    made.add_argument("--version", action="store_true", help="show the version")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _demo(_sub(commands, "demo", "the whole story on this machine, no keys, no network", common))
    _serve(_sub(commands, "serve", "API, web page and a worker on one store, until SIGTERM", common))
    _worker(_sub(commands, "worker", "work: claim runs and drive them, until SIGTERM", common))
    _runs(_group(commands, "runs", "start runs, look at them, talk to them, cancel them"), common)
    _actions(_group(commands, "actions", "what waits for a person, and the decisions"), common)
    _tokens(_group(commands, "tokens", "API tokens: who may call the server, and what they may do"), common)
    _sub(commands, "doctor", "rows against events, open questions, stuck runs, damaged files", common)
    _prune(_sub(commands, "prune", "remove old runs that have ended, and requests that nobody needs any more", common))
    _export(_sub(commands, "export", "what the store keeps of runs, as JSON lines; secrets are redacted", common))
    test = _sub(commands, "test", "crash-point proof of your own tools: the scenarios of a file", common)
    test.add_argument("file", metavar="FILE", help="a Python file or module with Scenarios, or either with :name")
    store = _group(commands, "db", "the store itself")
    _sub(store, "upgrade", "create the store, or bring its schema up to date", common)
    _sub(store, "restored", "after a copy was put back: what it shows as not begun counts as possibly sent", common)
    return made


Commands = argparse._SubParsersAction  # the one name that argparse has for it


def _common() -> Parser:
    made = Parser(add_help=False)
    # Without a default: a value before the command is not undone by the command's own parser.
    made.add_argument(
        "--store", metavar="URL", default=argparse.SUPPRESS, help="sqlite:///file.db or postgresql://user@host/db"
    )
    made.add_argument("--tenant", metavar="NAME", default=argparse.SUPPRESS, help="whose runs")
    made.add_argument("--url", metavar="URL", default=argparse.SUPPRESS, help="runs and actions: talk to this server")
    made.add_argument("--token", default=argparse.SUPPRESS, help="what the server is shown; better SUREFOOT_TOKEN")
    made.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one JSON document on stdout")
    return made


def _sub(commands: Commands[Parser], name: str, text: str, common: Parser) -> Parser:
    return commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", parents=[common], allow_abbrev=False
    )


def _group(commands: Commands[Parser], name: str, text: str) -> Commands[Parser]:
    made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    return made.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")


def _demo(made: Parser) -> None:
    made.add_argument("--yes", action="store_true", help="answer every question as the story has it")
    made.add_argument("--story", choices=STORIES, default=STORIES[0], help="which road is shown (default: %(default)s)")
    made.add_argument("--model", metavar="NAME", help="a real model writes the review, for example openai:gpt-5")
    made.add_argument("--keep", metavar="DIR", help="keep the store, the World's log and the agent's file there")


def _serve(made: Parser) -> None:
    made.add_argument("file", metavar="FILE", help=FILE_HELP)
    made.add_argument("--host", default=HOST_DEFAULT, help="the address to listen on (default: %(default)s)")
    made.add_argument("--port", type=_port, default=PORT_DEFAULT, help="0 takes a free one (default: %(default)s)")
    made.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers call this server; repeat it for more",
    )
    _lease(made)


def _worker(made: Parser) -> None:
    made.add_argument("file", metavar="FILE", help=FILE_HELP)
    made.add_argument("--until-idle", action="store_true", help="end when nothing goes on without a person")
    _lease(made)


def _lease(made: Parser) -> None:
    made.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="how lines on stderr are (default: %(default)s)"
    )
    made.add_argument("--lease-seconds", type=_positive, metavar="SECONDS", help="how long a claim lasts unrenewed")
    made.add_argument("--capacity", metavar="RUNS", help="how many runs this worker drives at once (default: 128)")
    made.add_argument(
        "--throttle", metavar="BOUND", help='the tool calls of all workers of the tenant: "rate=100 per=60 at_once=20"'
    )


def _runs(verbs: Commands[Parser], common: Parser) -> None:
    start = _sub(verbs, "start", "start a run; a worker does the work", common)
    start.add_argument("file", metavar="FILE", help=FILE_HELP)
    start.add_argument("text", metavar="TEXT", help="what the agent is asked; - reads stdin")
    start.add_argument("--key", help="the same key again answers with the run made first")
    start.add_argument("--conversation", metavar="ID", help="go on with this conversation")
    start.add_argument("--priority", type=int, default=0, help="-100 to 100: each step is worth a minute of waiting")
    start.add_argument("--metadata", metavar="JSON", help="an object that the run carries")
    start.add_argument("--wait", action="store_true", help="work here too, until the run ends or a person is asked")
    _by(start)
    listed = _sub(verbs, "list", "runs, newest first", common)
    listed.add_argument("--status", choices=[s.value for s in RunStatus])
    listed.add_argument("--agent", metavar="NAME")
    listed.add_argument("--limit", type=_count, default=RUNS_LIMIT, help="how many (default: %(default)s)")
    listed.add_argument("--before", metavar="ID", help="go on below this run")
    show = _sub(verbs, "show", "one run with its steps and questions", common)
    show.add_argument("id", metavar="RUN")
    show.add_argument("--messages", action="store_true", help="the conversation too")
    watch = _sub(verbs, "watch", "follow a run until it ends or a person is asked", common)
    watch.add_argument("id", metavar="RUN")
    watch.add_argument("--after", type=_count_or_zero, default=0, metavar="SEQUENCE", help="events after this one")
    message = _sub(verbs, "message", "say something to a run under way", common)
    message.add_argument("id", metavar="RUN")
    message.add_argument("text", metavar="TEXT", help="- reads stdin")
    message.add_argument("--key", help="the same message under the same key is one message")
    _by(message)
    signal = _sub(verbs, "signal", "tell a run that something has happened, for its wait_for_signal", common)
    signal.add_argument("id", metavar="RUN")
    signal.add_argument("name", metavar="NAME")
    signal.add_argument(
        "value", metavar="VALUE", nargs="?", help="JSON; what is not JSON counts as a text; - reads stdin"
    )
    signal.add_argument("--key", help="the same signal under the same key is one signal")
    _by(signal)
    retry = _sub(verbs, "retry", "take up a failed or cancelled run in a new one, with a fresh budget", common)
    retry.add_argument("id", metavar="RUN")
    _by(retry)
    cancel = _sub(verbs, "cancel", "stop a run; tells which calls may have been sent", common)
    cancel.add_argument("id", metavar="RUN")
    _by(cancel)


def _actions(verbs: Commands[Parser], common: Parser) -> None:
    listed = _sub(verbs, "list", "questions to people, oldest first", common)
    listed.add_argument("--status", choices=[s.value for s in ActionStatus])
    listed.add_argument("--run", metavar="RUN")
    _sub(verbs, "show", "one question with everything that is known", common).add_argument("id", metavar="ACTION")
    for name, text in (("approve", "let exactly this call happen"), ("reject", "refuse it; the model is told")):
        _decision(_sub(verbs, name, text, common))
    link = _sub(verbs, "link", "a signed link to one question, for a person", common)
    link.add_argument("id", metavar="ACTION")
    link.add_argument("--public-url", metavar="URL", help="where people reach the server (SUREFOOT_PUBLIC_URL)")
    link.add_argument("--for", dest="person", metavar="PERSON", help="whoever holds the link decides as this person")
    link.add_argument("--needs", dest="permission", metavar="NAME", help="a permission that it takes besides")
    link.add_argument(
        "--hours", type=_link_hours, default=LINK_HOURS, help="how long it is good (default: %(default)g)"
    )
    resolve = _decision(_sub(verbs, "resolve", "say what became of a call that may have been sent", common))
    what = resolve.add_mutually_exclusive_group(required=True)
    what.add_argument("--happened", action="store_const", dest="outcome", const="happened", help="with --id or --link")
    what.add_argument(
        "--did-not-happen",
        action="store_const",
        dest="outcome",
        const="did_not_happen",
        help="then it is sent again, with the same key",
    )
    what.add_argument(
        "--give-up",
        action="store_const",
        dest="outcome",
        const="give_up",
        help="close the question; the outcome stays unknown",
    )
    resolve.add_argument("--id", dest="resource_id", metavar="X", help="the id of what was made")
    resolve.add_argument("--link", metavar="U", help="its link")
    answer = _decision(_sub(verbs, "answer", "answer a question of the agent, or of surefoot", common))
    answer.add_argument("value", metavar="VALUE", help="JSON; what is not JSON counts as a text")


def _tokens(verbs: Commands[Parser], common: Parser) -> None:
    create = _sub(verbs, "create", "make a token; it is shown this once", common)
    create.add_argument("name", metavar="NAME", help="whose it is: what stands under its decisions")
    create.add_argument(
        "--permission",
        action="append",
        required=True,
        metavar="WORD",
        help="read, start, approve, resolve, evidence, admin; approve:tool=T, approve:class=C, approve:permission=P; "
        "repeat it for more",
    )
    create.add_argument("--expires-days", type=_positive, metavar="DAYS", help="how long it is good (default: no end)")
    _sub(verbs, "list", "the tokens, without their secrets", common)
    _sub(verbs, "revoke", "end a token and the sessions that began with it", common).add_argument("id", metavar="TOKEN")


def _decision(made: Parser) -> Parser:
    made.add_argument("id", metavar="ACTION")
    made.add_argument("--reason", metavar="TEXT")
    made.add_argument("--key", help="the same decision under the same key is answered as the first time")
    made.add_argument("--hash", metavar="HASH", help="decide only if the content is still the one with this input_hash")
    _by(made)
    return made


def _prune(made: Parser) -> None:
    made.add_argument(
        "--keep-days",
        type=_positive,
        default=KEEP_RUNS_DAYS,
        metavar="DAYS",
        help="runs that ended later stay (default: %(default)s)",
    )
    made.add_argument(
        "--keep-requests-days",
        type=_positive,
        default=KEEP_REQUESTS_DAYS,
        metavar="DAYS",
        help="exact requests of later steps stay (default: %(default)s)",
    )


def _export(made: Parser) -> None:
    made.add_argument("id", metavar="RUN", nargs="*", help="these runs (default: all of the tenant)")
    made.add_argument("--status", choices=[s.value for s in RunStatus], help="runs in this state")
    made.add_argument("--since", type=_moment, metavar="TIME", help="runs begun since, for example 2026-01-31T08:00Z")
    made.add_argument("--output", metavar="FILE", help="a new file, whole or not at all (default: stdout)")


def _by(made: Parser) -> None:
    made.add_argument("--by", metavar="PERSON", help="whose act it is (default: the operating system's user)")


def _moment(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no date or time like 2026-01-31T08:00Z") from None


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _link_hours(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= LINK_HOURS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text[:30]!r} is no time for a link: give a number above 0 and at most {LINK_HOURS_MAX:g} (a year)"
        )
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:30]!r} is not a whole number above 0 of at most 18 digits")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text[:30]!r} is not a port: give 1 to {PORT_MAX}, or 0 for a free one")
    return int(text)


def _count_or_zero(text: str) -> int:
    return 0 if text == "0" else _count(text)
