"""One command line a test."""

from __future__ import annotations

import pytest

from tests.cli.rig import Cli
from tests.places import Place


@pytest.fixture
def cli(place: Place) -> Cli:
    """`surefoot` in an empty folder with agents.py."""
    return Cli(place)
