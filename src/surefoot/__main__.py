"""`python -m surefoot` is the command `surefoot`."""

from __future__ import annotations

import sys

from surefoot.cli import main

sys.exit(main())
