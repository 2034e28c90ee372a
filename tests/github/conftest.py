"""Each test begins as a new process does: no account is known."""

from __future__ import annotations

import pytest

from tests.github.rig import Rig, forget_accounts, virtual_rig


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_API_URL", "SUREFOOT_GITHUB_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    forget_accounts()


@pytest.fixture
def rig() -> Rig:
    """A World without sockets, on virtual time."""
    return virtual_rig()
