"""Ids: sortable, prefixed, distinct types. Steps and calls are named after their run: the core mints them alone."""

from __future__ import annotations

from typing import NewType

RunId = NewType("RunId", str)
StepId = NewType("StepId", str)
ConversationId = NewType("ConversationId", str)
ActionId = NewType("ActionId", str)
CallId = NewType("CallId", str)
LeaseToken = NewType("LeaseToken", int)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
RANDOM_BYTES = 10
SEQUENCE_DIGITS_MAX = 9


def mint(prefix: str, wall_s: float, random: bytes) -> str:
    """`prefix_` and 26 base32 characters: 48 bits of wall-clock milliseconds, then 80 random bits (RANDOM_BYTES)."""
    number = (int(wall_s * 1000) << 80) | int.from_bytes(random[:RANDOM_BYTES])
    return prefix + "_" + "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def step_id(run_id: str, sequence: int) -> StepId:
    """The id of a run's nth step."""
    return StepId(f"step_{run_id.removeprefix('run_')}_{sequence:05d}")


def call_id(run_id: str, model_sequence: int, position: int) -> CallId:
    """The id of one tool call, unique for ever: minted from the model step and the call's position in its answer."""
    return CallId(f"call_{run_id.removeprefix('run_')}_{model_sequence}_{position}")


def operation_key(run_id: str, step: str) -> str:
    """The key under which a step's effect is sent and looked up, where the tool derives none from business identity."""
    return f"{run_id}:{step}"


def run_of_step(step: str) -> RunId:
    """The run that a step id belongs to."""
    return RunId("run_" + step.removeprefix("step_").rpartition("_")[0])


def sequence_of_step(step: str) -> int:
    """The place in its run that a step id says; 0, where no step is, for what is no step's id."""
    last = step.rpartition("_")[2]
    return int(last) if len(last) <= SEQUENCE_DIGITS_MAX and last.isascii() and last.isdecimal() else 0
