"""The effect of the kill tests: a comment is posted to the target of the benchmark. Standard library only.

    python -m benchmarks.programs.kill_NAME FOLDER PORT STEPS [before] [URL]

does so many steps, then posts the comment, and prints "DONE" when the run's end is durable. Started again with the same
words it goes on by whatever its engine has for that. With `before` it kills itself directly before the request. A URL
is that of a database on PostgreSQL, where the engine has it instead of a file in the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

POSTGRES = "postgresql://"
SECONDS_MAX = 30.0
TEXT = "y" * 1024
"""What each step before the comment results in."""


class Story:
    """What the command line asks for."""

    def __init__(self, words: list[str]) -> None:
        self.folder = Path(words[0])
        self.url = f"http://127.0.0.1:{int(words[1])}"
        self.steps = int(words[2])
        self._dies = "before" in words[3:]
        self.database = next((word for word in words[3:] if word.startswith(POSTGRES)), None)

    def about_to_post(self) -> None:
        """The moment of the first kill test."""
        if self._dies:
            os.kill(os.getpid(), signal.SIGKILL)

    def post(self) -> dict[str, object]:
        """Post the comment, as a tool does that knows nothing of keys."""
        self.about_to_post()
        request = urllib.request.Request(f"{self.url}/comments", data=json.dumps({"text": "hello"}).encode())
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as reply:
            comment: dict[str, object] = json.loads(reply.read())
        return comment


def ended(run: Callable[[], object]) -> None:
    """Run it; a line says how it ended."""
    try:
        sys.stdout.write(f"DONE {run()}\n")
    except Exception as error:
        sys.stdout.write(f"ERROR {type(error).__name__}: {error}\n")
    sys.stdout.flush()
