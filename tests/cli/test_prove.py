"""surefoot test: good tools hold at every crash point, planted bad ones are found, and nothing to prove is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.rig import Answer, Cli

pytestmark = pytest.mark.sqlite_only("the command plays its stories on files of its own, whatever the store is")

TOOLS = '''
import json

from surefoot import Absent, Agent, Found, Operation, Receipt, effects, tool
from surefoot.http import client
from surefoot.testing import FakeModel, Scenario
from surefoot.testing.wire import Outcome, json_reply


class Billing:
    """A service without idempotency keys that lists what it made."""

    def __init__(self):
        self.made = []

    def handle(self, request, now):
        if request.method == "POST":
            self.made.append(json.loads(request.body)["reference"])
            return Outcome(1, json_reply(201, {"id": str(len(self.made))}), now)
        return Outcome(1, json_reply(200, self.made), now)

    def due(self, now):
        pass

    def next_due(self):
        return None


class Counted(Billing):
    def effects(self, operation_key):
        return [key for key in self.made if key == operation_key]


async def find(op: Operation):
    async with client(op, base_url="https://billing.example") as http:
        made = (await http.get("/invoices")).json()
    if op.key in made:
        return Found(Receipt(resource_id=str(made.index(op.key) + 1)))
    return Absent(coverage="all invoices")


async def find_or_shrug(op: Operation):
    try:
        return await find(op)
    except Exception:
        return Absent(coverage="nothing came back")


async def bill(op: Operation, cents: int) -> Receipt:
    """Send a bill."""
    async with client(op, base_url="https://billing.example") as http:
        made = (await http.post("/invoices", json={"reference": op.key, "cents": cents})).json()
    return Receipt(resource_id=made["id"])


looks = tool(effect=effects.lookup(find, settle=5))(bill).using(name="looks")
shrugs = tool(effect=effects.lookup(find_or_shrug, settle=5))(bill).using(name="shrugs")
resends = tool(effect=effects.idempotent(key_lifetime=86_400))(bill).using(name="resends")
asks = tool(effect=effects.opaque)(bill).using(name="asks")


def story(used, target=Counted, check=None):
    def agents():
        model = FakeModel([[(used.name, {"cents": 900})], "Sent."])
        return [Agent("biller", model, tools=[used])]

    return Scenario(agents, target, check=check)

'''


def _proof(cli: Cli, scenarios: str, name: str = "", *, json: bool = True) -> Answer:
    (cli.folder / "tools.py").write_text(TOOLS + scenarios)
    return cli.run("test", f"tools.py:{name}" if name else "tools.py", *(["--json"] if json else []))


def _only(answer: Answer) -> dict[str, object]:
    proofs = answer.record()["proofs"]
    assert isinstance(proofs, list) and len(proofs) == 1
    proof: dict[str, object] = proofs[0]
    return proof


def test_a_tool_that_looks_holds_at_every_point(cli: Cli) -> None:
    answer = _proof(cli, "once = story(looks)")
    proof = _only(answer)
    assert answer.code == 0 and answer.record()["held"] is True, answer
    assert proof["tools"] == [{"tool": "looks", "effect": "lookup"}] and proof["failures"] == []
    points = proof["points"]
    assert isinstance(points, int) and points > 15
    assert answer.record()["unproved"] == ["asks", "resends", "shrugs"]
    assert f"{points} of {points} crash points" in answer.err


@pytest.mark.parametrize(("name", "said"), [("resends", "http.send 1 after"), ("shrugs", "answered 503")])
def test_a_planted_bad_tool_is_found(cli: Cli, name: str, said: str) -> None:
    answer = _proof(cli, f"twice = story({name})")
    failures = _only(answer)["failures"]
    assert answer.code == 1 and answer.record()["held"] is False
    assert isinstance(failures, list) and all(f"{name} had 2 effects" in f["what"] for f in failures), failures
    assert any(said in f"{f['passage']} {f['what']}" for f in failures), failures


def test_an_opaque_tool_holds_by_asking_a_person(cli: Cli) -> None:
    answer = _proof(cli, "asked = story(asks)")
    asked = _only(answer)["asked"]
    assert answer.code == 0 and isinstance(asked, int) and asked > 3, answer


def test_people_read_a_table_and_what_happened_where(cli: Cli) -> None:
    answer = _proof(cli, "good = story(looks)\nbad = story(resends)", json=False)
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert answer.code == 1 and lines[0] == "tool class scenario crash points"
    assert lines[1].startswith("looks lookup good ") and lines[1].endswith(" held")
    assert lines[2].startswith("resends idempotent bad ") and lines[2].endswith(" failed")
    assert "asks none not proved: no scenario calls it" in lines
    assert any(line.startswith("bad, crashed at #") and "2 effects under its key" in line for line in lines)
    one = _proof(cli, "good = story(looks)\nbad = story(resends)", "good")
    assert one.code == 0 and one.record()["unproved"] == []


def test_a_check_of_ones_own_judges(cli: Cli) -> None:
    check = "def check(end):\n    assert len(end.target.made) == 1, f'{len(end.target.made)} bills'\n"
    good = _proof(cli, check + "mine = story(looks, Billing, check)")
    bad = _proof(cli, check + "mine = story(resends, Billing, check)")
    assert good.code == 0 and bad.code == 1 and "2 bills" in bad.out


def test_a_story_that_fails_without_a_crash_says_so(cli: Cli) -> None:
    answer = _proof(cli, "def check(end):\n    assert False, 'never'\nwrong = story(looks, Billing, check)")
    assert answer.code == 1 and _only(answer)["failures"] == [{"place": None, "passage": None, "what": "never"}]


def test_a_double_answers_with_a_reply_and_is_told_where_it_does_not(cli: Cli) -> None:
    double = "class Own(Counted):\n    def handle(self, request, now):\n        return {}\nmine = story(looks, Own)"
    good = _proof(cli, double.format("super().handle(request, now).reply"))
    assert good.code == 0
    bad = _proof(cli, double.format("None"))
    assert (bad.code, bad.error) == (2, "invalid_input") and "answers a request with a Reply" in bad.out


def test_the_example_of_the_documentation_is_proved(cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    block = next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "crash_points(" in code)
    (cli.folder / "own.py").write_text(block.partition("report =")[0] + "comment_once = Scenario(agents, world)\n")
    answer = cli.json("test", "own.py:comment_once")
    assert answer.code == 0 and _only(answer)["tools"] == [{"tool": "create_issue_comment", "effect": "lookup"}]
    assert f" comment_once  {_only(answer)['points']} " in page


@pytest.mark.parametrize("scenarios", ["", "blind = story(looks, Billing)"])
def test_nothing_to_prove_is_wrong_use_with_an_example(cli: Cli, scenarios: str) -> None:
    answer = _proof(cli, scenarios)
    assert (answer.code, answer.error) == (2, "nothing_to_prove")
    assert "Scenario(agents, World)" in answer.out


def test_a_scenario_that_there_is_not(cli: Cli) -> None:
    answer = _proof(cli, "once = story(looks)", "twice")
    assert (answer.code, answer.error) == (2, "nothing_to_prove") and "twice" in answer.out
