"""From words to an exit code."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from surefoot.cli.arguments import COMMANDS, parse, split_json
from surefoot.cli.output import DONE, INTERRUPTED, UNREACHABLE, CannotWrite, Output, hand_over, open_streams
from surefoot.cli.settings import Settings, check_place, read_settings
from surefoot.errors import InvalidInput, StoreUnavailable, SurefootError

BROKEN_PIPE = 141
PATHS = ("file", "keep", "output")
"""Arguments that name files."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's own words) names; returns the exit code."""
    open_streams()
    as_json, words = split_json(list(sys.argv[1:] if argv is None else argv))
    out = Output(as_json)
    try:
        return _answer(words, out)
    except CannotWrite as problem:
        # Nothing more can be said on stdout, not even when the interpreter flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        out.note(f"surefoot: the output cannot be written ({problem}); what was done stays done")
        return UNREACHABLE
    finally:
        if not hand_over():
            # The interpreter flushes once more, and its exit code would speak of a line and not of what was done.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _answer(words: Sequence[str], out: Output) -> int:
    try:
        return _run(words, out)
    except SurefootError as error:
        return out.error(error)
    except KeyboardInterrupt:
        out.note("surefoot: interrupted; what was written stays, and any worker goes on from there")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left. Nothing more can be said, not even when the interpreter flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except CannotWrite:
        raise
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return out.bug(error)
        return out.error(StoreUnavailable(f"{error.strerror}: this process may open no more; raise `ulimit -n`"))
    except Exception as error:
        return out.bug(error)


def _run(words: Sequence[str], out: Output) -> int:
    found = parse(words)
    if found.version:
        return _version(out)
    _refuse_what_is_no_text(found)
    if not found.command:
        raise InvalidInput(f"which command? {', '.join(COMMANDS)}; see `surefoot --help`", code="wrong_use")
    settings = read_settings(vars(found), os.environ, Path.cwd())
    check_place(found.command, vars(found), settings)
    out.language = settings.language
    out.json_lines = getattr(found, "log_format", "text") == "json"
    return _dispatch(found, settings, out)


def _refuse_what_is_no_text(found: argparse.Namespace) -> None:
    """Words that are not UTF-8 are in no store. Paths may be of any bytes.

    What a locale without UTF-8 could not read may be UTF-8 all the same, and is taken as that.
    """
    for name, value in vars(found).items():
        if name not in PATHS and isinstance(value, str) and any("\udc80" <= c <= "\udcff" for c in value):
            given = os.fsencode(value)
            try:
                setattr(found, name, given.decode())
            except UnicodeDecodeError:
                text = given.decode(errors="backslashreplace")
                raise InvalidInput(f"{text} is not UTF-8; give it as UTF-8", code="wrong_use") from None


def _dispatch(found: argparse.Namespace, settings: Settings, out: Output) -> int:
    """Load the command's own module and run it: a rescue does not wait for what it does not need."""
    match found.command.split():
        case ["worker"]:
            from surefoot.cli.worker import work

            return work(found, settings, out)
        case ["serve"]:
            from surefoot.cli.serve import serve

            return serve(found, settings, out)
        case ["tokens", verb]:
            from surefoot.cli import tokens

            return asyncio.run(tokens.COMMANDS[verb](found, settings, out))
        case ["runs", verb]:
            from surefoot.cli import runs

            return asyncio.run(runs.COMMANDS[verb](found, settings, out))
        case ["actions", verb]:
            from surefoot.cli import actions

            return asyncio.run(actions.COMMANDS[verb](found, settings, out))
        case ["export"]:
            from surefoot.cli.export import export

            return asyncio.run(export(found, settings, out))
        case ["test"]:
            from surefoot.cli.prove import test

            return test(found, out)
        case ["demo"]:
            from surefoot.cli.demo import show

            return show(found, settings, out)
        case _:
            from surefoot.cli import upkeep

            return asyncio.run(upkeep.COMMANDS[str(found.command)](found, settings, out))


def _version(out: Output) -> int:
    from importlib.metadata import version

    out.document({"version": version("surefoot")})
    out.line(f"surefoot {version('surefoot')}")
    return DONE
