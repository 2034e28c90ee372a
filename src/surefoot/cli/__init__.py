"""The command line. Each command calls the store or one method of `Surefoot`; none has rules of its own."""

from __future__ import annotations

from surefoot.cli.entry import main

__all__ = ["main"]
