"""How much DBOS stores: one workflow of so many steps, each with a result of 1 KiB, on its default SQLite file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dbos import DBOS, DBOSConfig

from benchmarks.programs.grown import Meter, text_of


def _note(number: int) -> str:
    return text_of(number)


note = DBOS.step()(_note)


def _notes(steps: int) -> None:
    for number in range(steps):
        note(number)


notes = DBOS.workflow()(_notes)

if __name__ == "__main__":
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    url = f"sqlite:///{folder / 'dbos.db'}"
    DBOS(config=DBOSConfig(name="storage", system_database_url=url, log_level="ERROR", console_log_level="ERROR"))
    DBOS.launch()
    meter = Meter(folder, steps)
    notes(steps)
    meter.tell()
    os._exit(0)
