"""Markers for operations: the keyring behind `Operation.sign`, `matches` and `scan`."""

from __future__ import annotations

from surefoot.core import marker
from surefoot.core.marker import Keyring, Scan
from surefoot.effects import Operation


class KeyringSigner:
    """Signs and recognises the markers of operations with one keyring."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def sign(self, op: Operation, text: str, place: str, account: str) -> str:
        """`text` without any marker in it, and this operation's marker as the last line."""
        made = marker.make_marker(
            self._keyring,
            tenant_id=op.tenant_id,
            run_id=op.run_id,
            step_id=op.step_id,
            key=op.key,
            place=place,
            account=account,
        )
        return marker.append_marker(text, made)

    def scan(self, op: Operation, text: str, place: str, account: str) -> Scan:
        """What `text` holds of this operation: `ours`, `forged` or `none`. Never raises."""
        return marker.scan(
            text,
            self._keyring,
            tenant_id=op.tenant_id,
            run_id=op.run_id,
            step_id=op.step_id,
            key=op.key,
            place=place,
            account=account,
        )
