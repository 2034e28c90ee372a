"""One `emulate` for all foreign tests, a proxy and a repository for each."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from surefoot.connectors import github_api, github_app
from tests.foreign.proxy import Proxy
from tests.foreign.service import TOKEN, Emulate, Repository

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def app_key() -> str:
    """The private key of the GitHub App."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@pytest.fixture(scope="session")
def emulate(tmp_path_factory: pytest.TempPathFactory, app_key: str) -> Iterator[Emulate]:
    """The services."""
    made = Emulate(tmp_path_factory.mktemp("emulate"), app_key)
    yield made
    made.stop()


@pytest.fixture
def repository(emulate: Emulate) -> Iterator[Repository]:
    """A repository that no other test uses."""
    made = Repository(emulate.github, f"app{next(_numbers)}")
    yield made
    made.close()


@pytest.fixture
async def proxy(emulate: Emulate, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """The way to GitHub, for this process and its children."""
    made = Proxy(emulate.github)
    async with made as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        for name in ("GITHUB_APP_ID", "SUREFOOT_GITHUB_ACCOUNT"):
            monkeypatch.delenv(name, raising=False)
        github_api._accounts.clear()
        github_app._tokens.clear()
        yield made
