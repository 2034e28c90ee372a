"""One command line a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.rig import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """`surefoot` in an empty folder with agents.py."""
    return Cli(tmp_path)
