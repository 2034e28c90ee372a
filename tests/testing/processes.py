"""Doubles as processes of their own, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import surefoot.testing
from tests.support import eventually_sync


@contextmanager
def process(module: str, *arguments: str, port_file: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a double as a process; it is ended and awaited at the end. The value is the process and its URL."""
    source = Path(surefoot.testing.__path__[0]).parents[1]
    command = [sys.executable, "-m", module, "--port", "0", "--port-file", str(port_file), *arguments]
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(source)})
    try:
        eventually_sync(lambda: port_file.exists() or child.poll() is not None, f"the start of {module}")
        assert child.poll() is None, f"{module} did not start"
        yield child, f"http://127.0.0.1:{port_file.read_text()}"
    finally:
        child.kill()
        child.wait()
