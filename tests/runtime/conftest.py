"""Stories in virtual time, judged at their end as the field cases are."""

from __future__ import annotations

from tests.cases.conftest import _token as _token
from tests.cases.conftest import folder as folder
from tests.cases.conftest import sim as sim
