"""surefoot test: the scenarios of a file, each crashed at every passage of a door."""

from __future__ import annotations

import argparse

import msgspec

from surefoot.agent.agent import Agent
from surefoot.agent.tools import Tool
from surefoot.cli.output import DONE, FINDINGS, Output, shown
from surefoot.cli.userfile import imported, split_place
from surefoot.core.redact import Redactor
from surefoot.errors import InvalidInput
from surefoot.runtime.secrets import EnvironmentSecrets
from surefoot.testing.crash import Scenario
from surefoot.testing.proof import Failure, Proof, prove

PROGRESS_POINTS = 50
"""A line of progress after so many points."""
FAILURES_SHOWN_MAX = 20
EXAMPLE = """\
for example
    from surefoot.testing import FakeModel, Scenario, World
    def agents():
        return [Agent("a", FakeModel([[("my_tool", {"text": "hi"})], "Done."]), tools=[my_tool])]
    my_tool_once = Scenario(agents, World)
see docs/testing.md"""


class Tested(msgspec.Struct, frozen=True):
    """All proofs of a file; `unproved` are tools that change something and that no scenario called."""

    held: bool
    proofs: list[Proof]
    unproved: list[str]


def test(found: argparse.Namespace, out: Output) -> int:
    """Prove each scenario of a file. Raises InvalidInput (`nothing_to_prove`) where there is none that could fail."""
    where, name = split_place(found.file)
    values = vars(imported(where))
    scenarios = {key: value for key, value in values.items() if isinstance(value, Scenario) and name in (None, key)}
    if not scenarios:
        what = "no Scenario at module level" if name is None else f"no Scenario {shown(name)}"
        raise InvalidInput(f"{shown(where)} has {what}: write one, {EXAMPLE}", code="nothing_to_prove")
    proofs = [_proof(key, scenario, out) for key, scenario in scenarios.items()]
    called = {tool.tool for proof in proofs for tool in proof.tools}
    held = not any(proof.failures for proof in proofs)
    tested = Tested(held, proofs, [] if name is not None else sorted(_effectful(values) - called))
    out.document(tested)
    _print(tested, out)
    return DONE if held else FINDINGS


def _proof(name: str, scenario: Scenario, out: Output) -> Proof:
    def progress(played: int, points: int) -> None:
        if played % PROGRESS_POINTS == 0 or played == points:
            out.note(f"{name}: {played} of {points} crash points")

    try:
        proof = prove(name, scenario, progress)
    except InvalidInput as problem:
        raise InvalidInput(f"{problem}; {EXAMPLE}", code=problem.code) from None
    redactor = Redactor()
    EnvironmentSecrets(redactor)
    failures = [Failure(f.place, f.passage, redactor.patterns(f.what)[0]) for f in proof.failures]
    return msgspec.structs.replace(proof, failures=failures)


def _effectful(values: dict[str, object]) -> set[str]:
    """The tools of the file that change something, also those of its agents."""
    of_agents = [tool for value in values.values() if isinstance(value, Agent) for tool in value.tools.values()]
    own = [value for value in values.values() if isinstance(value, Tool)]
    return {tool.name for tool in [*own, *of_agents] if tool.effect.name != "read"}


def _print(tested: Tested, out: Output) -> None:
    rows = [("tool", "class", "scenario", "crash points", "")]
    for proof in tested.proofs:
        asked = f", {proof.asked} with a question to a person" if proof.asked else ""
        verdict = f"{len(proof.failures)} failed" if proof.failures else f"held{asked}"
        for tool in proof.tools:
            rows.append((shown(tool.tool), tool.effect, proof.scenario, str(proof.points), verdict))
    rows += [(shown(name), "", "none", "", "not proved: no scenario calls it") for name in tested.unproved]
    out.table(rows)
    for proof in tested.proofs:
        for failure in proof.failures[:FAILURES_SHOWN_MAX]:
            at = "without a crash" if failure.place is None else f"crashed at #{failure.place} {failure.passage}"
            out.line(f"{proof.scenario}, {at}: {shown(failure.what)}")
        if len(proof.failures) > FAILURES_SHOWN_MAX:
            out.line(f"{proof.scenario}: and {len(proof.failures) - FAILURES_SHOWN_MAX} more; --json has all")
