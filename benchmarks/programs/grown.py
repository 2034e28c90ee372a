"""What a long run leaves on the disk, and what it wrote on the way. Standard library only."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PAYLOAD_BYTES = 1024
WORDS = [
    "amber", "basil", "cedar", "delta", "ember", "flint", "grove", "hazel",
    "ivory", "juniper", "kelp", "linen", "maple", "north", "olive", "pearl",
]  # fmt: skip


@dataclass(frozen=True)
class Grown:
    """At the end of a run: the database's pages, its file with its log, what the process wrote, and its seconds."""

    steps: int
    database_bytes: int
    file_bytes: int
    written_bytes: int
    seconds: float


class Meter:
    """From where it is made to where it tells."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._steps = folder, steps
        self._written, self._began = written_bytes(), time.perf_counter()

    def tell(self) -> None:
        """One line of JSON, a Grown. Called while the database is open, so its log is still there."""
        seconds, written = time.perf_counter() - self._began, written_bytes() - self._written
        connection = sqlite3.connect(next(self._folder.glob("*.db")))
        pages, page_bytes = (connection.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "page_size"))
        connection.close()
        size = sum(file.stat().st_size for file in self._folder.glob("*.db*") if file.is_file())
        grown = Grown(self._steps, pages * page_bytes, size, written, seconds)
        sys.stdout.write(json.dumps(asdict(grown)) + "\n")
        sys.stdout.flush()


def written_bytes() -> int:
    """What this process has handed to the disk; 0 where the system does not tell."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return 0
    return next(int(line.split()[1]) for line in counters.read_text().splitlines() if line.startswith("write_bytes"))


def text_of(number: int) -> str:
    """1 KiB of words that no other number has."""
    words: list[str] = []
    block = 0
    while sum(map(len, words)) + len(words) < PAYLOAD_BYTES:
        digest = hashlib.sha256(f"{number}:{block}".encode()).digest()
        words += [WORDS[byte % len(WORDS)] for byte in digest]
        block += 1
    return " ".join(words)[:PAYLOAD_BYTES]
