"""Stories in virtual time, judged at their end as the field cases are."""

from __future__ import annotations

from tests.cases.conftest import _token as _token, folder as folder, sim as sim
