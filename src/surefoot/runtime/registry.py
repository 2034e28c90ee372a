"""What the code of now offers: tools by name, as the runtime needs to see them, and what they mean for decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Protocol

from surefoot.core.codec import in_few_words
from surefoot.core.state import EffectClass, Rules, Run, WaitsFor
from surefoot.core.throttle import Throttle
from surefoot.effects import Effect, Operation, Receipt
from surefoot.errors import InvalidInput
from surefoot.runtime.given import called

ASK_AFTER_SETTLES = 2.0
"""After that many settle times of doubt a person is asked too, while the lookups go on."""
ASK_AFTER_SECONDS_MIN = 5.0

Arguments = Mapping[str, object]


class ApprovalRule(Protocol):
    """Who may approve, and for how many seconds the question stays open."""

    @property
    def permission(self) -> str | None:
        """The permission that the person needs."""
        ...

    @property
    def expires(self) -> float:
        """Seconds."""
        ...


class RunnableTool(Protocol):
    """A tool as the runtime uses it; `surefoot.agent.tools.Tool` is one and documents the members."""

    @property
    def name(self) -> str:
        """Unique among the tools of an agent."""
        ...

    @property
    def place(self) -> str:
        """Where its function stands, as a name: the same for copies, and for one that was mended."""
        ...

    @property
    def version(self) -> str:
        """Changes when a call approved for the old code must be asked about again."""
        ...

    @property
    def effect(self) -> Effect:
        """The declared class."""
        ...

    @property
    def approval(self) -> ApprovalRule | None:
        """None: no person is asked."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds for one attempt."""
        ...

    @property
    def attempts(self) -> int:
        """Attempts at most."""
        ...

    @property
    def starts_programs(self) -> bool:
        """The tool starts programs that may outlive the worker."""
        ...

    @property
    def credential(self) -> str | None:
        """The name of the secret that it sends under."""
        ...

    @property
    def throttle(self) -> Throttle | None:
        """What bounds its calls over all workers."""
        ...

    @property
    def is_async(self) -> bool:
        """Awaited on the loop, or run in a thread."""
        ...

    @property
    def account(self) -> Callable[[Operation], Awaitable[str]] | None:
        """Resolves the account of the credential."""
        ...

    @property
    def precondition(self) -> Callable[..., object] | None:
        """What must not have changed between approval and send."""
        ...

    @property
    def display(self) -> Mapping[str, Mapping[str, str]]:
        """Texts by language."""
        ...

    @property
    def waits_for(self) -> WaitsFor | None:
        """What its calls wait for instead of being sent."""
        ...

    @property
    def compensate(self) -> Callable[..., object] | None:
        """What undoes a duplicate."""
        ...

    def needs_approval(self, arguments: Arguments) -> bool:
        """Whether a person must approve this call."""
        ...

    def target_text(self, arguments: Arguments) -> str:
        """What the call acts on; "" where the tool does not say."""
        ...

    def make_call(self, op: Operation, arguments: Arguments) -> Callable[[], object]:
        """The call with its arguments bound."""
        ...

    def make_lookup(self, op: Operation, arguments: Arguments) -> Callable[[], object]:
        """The lookup with its arguments bound."""
        ...

    def make_precondition(self, op: Operation, arguments: Arguments) -> Callable[[], object]:
        """The precondition with its arguments bound."""
        ...

    def make_compensation(self, receipt: Receipt, arguments: Arguments) -> object:
        """The call that undoes one effect."""
        ...


def rules_of(tool: RunnableTool) -> Rules:
    """What a tool's declaration means for decisions."""
    effect = tool.effect
    rules = Rules(
        effect=EffectClass(effect.name),
        # Plain numbers: a float of another library's could not be written down.
        settle_s=float(effect.settle),
        key_lifetime_s=None if effect.key_lifetime is None else float(effect.key_lifetime),
        has_lookup=effect.lookup is not None,
        attempts_max=int(tool.attempts),
        timeout_s=float(tool.timeout),
        ask_after_s=max(float(effect.settle) * ASK_AFTER_SETTLES, ASK_AFTER_SECONDS_MIN),
        approval_expires_s=float(tool.approval.expires) if tool.approval is not None else 604_800.0,
        starts_programs=tool.starts_programs,
        waits_for=tool.waits_for,
    )
    return in_few_words(rules)


class Tools:
    """Tools by name, with their rules. A later one of a name wins."""

    def __init__(self, tools: Iterable[RunnableTool] = ()) -> None:
        self.tools: dict[str, RunnableTool] = {}
        self.rules: dict[str, Rules] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: RunnableTool) -> None:
        """Know a tool."""
        if self.tools.get(tool.name) is tool:
            return
        self.tools[tool.name] = tool
        self.rules[tool.name] = rules_of(tool)

    def rules_for(self, tool: RunnableTool) -> Rules:
        """The rules of a tool; those of one that is known are made once."""
        return self.rules[tool.name] if self.tools.get(tool.name) is tool else rules_of(tool)

    def __getitem__(self, name: str | None) -> RunnableTool:
        """Raises KeyError for a name that the code of now does not know."""
        return self.tools[name or ""]


class Registry(Tools):
    """The tools of a process: each agent's own, which its runs are given and no others, and those for `perform`.

    Two agents may have tools of one name: copies that are configured differently, or functions that do different
    things. A performed call has no agent. Where several functions are meant by its name it is given none, unless one of
    them was declared for it (`add`): to run another function than the one that was asked for is worse than to run none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._agents: dict[str, Tools] = {}
        self._declared: set[str] = set()
        self._ambiguous: set[str] = set()

    def add(self, tool: RunnableTool) -> None:
        """Know a tool for `perform`. Raises InvalidInput for what is none, and for another function under its name."""
        if not hasattr(tool, "effect"):
            raise InvalidInput(f"{called(tool)} is no tool; write @tool(effect=…) above the function")
        known = self.tools.get(tool.name)
        if known is tool and tool.name in self._declared:
            return
        if known is not None and tool.name in self._declared and known.place != tool.place:
            raise InvalidInput(
                f"two tools are called {tool.name!r} ({known.place} and {tool.place}), and a call that is performed "
                "says no more than the name: give one of them another with using(name=…)"
            )
        self._declared.add(tool.name)
        super().add(tool)

    def give(self, agent: str, tools: Iterable[RunnableTool]) -> None:
        """Know the tools of an agent; for `perform` too, as far as their names are clear."""
        self._agents[agent] = Tools(tools)
        for tool in self._agents[agent].tools.values():
            self.offer(tool)

    @property
    def credentials(self) -> frozenset[str]:
        """The names of the secrets that tools act with: their values are known to redaction before any call."""
        return frozenset(tool.credential for tool in self._every() if tool.credential)

    @property
    def calls_agents(self) -> bool:
        """Whether runs of agents work on calls of some of them."""
        return any(tool.waits_for is WaitsFor.run for tool in self._every())

    @property
    def looking(self) -> frozenset[str]:
        """The names of the tools that have a lookup."""
        return frozenset(tool.name for tool in self._every() if tool.effect.lookup is not None)

    def _every(self) -> Iterator[RunnableTool]:
        return (tool for tools in (self, *self._agents.values()) for tool in tools.tools.values())

    def offer(self, tool: RunnableTool) -> None:
        """Know a tool for `perform` where its name is clear and nobody has declared another."""
        if tool.name in self._declared or tool.name in self._ambiguous:
            return
        known = self.tools.get(tool.name)
        if known is None or known.place == tool.place:
            super().add(tool)
            return
        self._ambiguous.add(tool.name)
        del self.tools[tool.name], self.rules[tool.name]

    def of(self, run: Run) -> Tools:
        """The tools that a run may call: those of its agent. A performed call may be any."""
        return self if run.kind == "perform" else self._agents.get(run.agent, self)
