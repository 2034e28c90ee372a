"""The other end of process.py."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Helper:
    """A process that uses the store at `path`. `prefix` is a program that runs it, such as strace."""

    def __init__(self, path: str, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.store.process", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        )

    def send(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, *words: object) -> str:
        """Tell it something; its answer. Blocks."""
        self.send(*words)
        return self.read()

    async def tell(self, *words: object) -> str:
        """The same, while the event loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(None, lambda: self.ask(*words))

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Let it end by itself, and wait for that."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()
