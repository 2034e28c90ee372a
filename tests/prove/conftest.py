"""The same World as for the short proofs."""

from __future__ import annotations

from tests.processes.conftest import world as world
