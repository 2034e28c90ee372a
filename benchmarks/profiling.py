"""`--profile`: where the time of a step goes with 64 runs at once, by layer and by function, as profile.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from benchmarks.programs.profiled import Profile, Spent
from benchmarks.rounds import LOOP, PERFORM, ROOT, Program, fresh_folder, run_program
from benchmarks.tables import grid, number

PAGE = ROOT / "benchmarks" / "profile.md"
SHOWN = 30
STEPS, AT_ONCE, RUNS_MIN, SECONDS_MIN = 20, 64, 128, 3.0

LAYERS = {
    "src/surefoot/core/": "core: decide, evolve, values",
    "src/surefoot/store/": "store: writer, rows, reads (with SQLite and the disk)",
    "src/surefoot/runtime/": "runtime: drive, execute, worker",
    "src/surefoot/agent/": "agent: loop, tools, starting",
    "src/surefoot/": "surface: app, snapshot, doors, effects, signing",
    "benchmarks/": "the benchmark itself",
    "asyncio/": "asyncio (with select)",
}
OTHER = "other libraries"


@dataclass(frozen=True)
class Seen:
    """One function by both profiles, a step: microseconds in itself and in total, calls."""

    spent: Spent
    own_us: float
    total_us: float
    calls: float


def layer_of(file: str) -> str:
    """The layer that a file belongs to."""
    return next((name for start, name in LAYERS.items() if file.startswith(start)), OTHER)


def write_profile(tell: Callable[[str], None]) -> None:
    """Profile both rows and write the page. Raises ProgramFailed."""
    parts = [_HEAD]
    for program in (PERFORM, LOOP):
        tell(f"profile of {program.label}")
        parts.append(_section(program))
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    tell(f"written: {PAGE.relative_to(ROOT)}")


def _profile(how: str, program: Program) -> Profile:
    words = (how, program.what, str(fresh_folder("profile")), *map(str, (STEPS, AT_ONCE, RUNS_MIN, SECONDS_MIN)))
    return msgspec.json.decode(run_program(program.python, "profiled", *words), type=Profile)


def _section(program: Program) -> str:
    sampled, counted = _profile("sampled", program), _profile("counted", program)
    calls = {(one.file, one.line): one.calls / counted.steps_done for one in counted.functions if one.file}
    seen = [
        Seen(
            one,
            one.own / sampled.steps_done * 1e6,
            one.total / sampled.steps_done * 1e6,
            calls.get((one.file, one.line), 0.0),
        )
        for one in sampled.functions
    ]
    whole = sum(one.own_us for one in seen)
    parts = [
        f"## {program.label}: {whole:,.0f} µs of CPU a step",
        _by_layer(seen, whole),
        "### By own time (C functions count for their caller)",
        _table(sorted(seen, key=lambda one: -one.own_us)[:SHOWN], whole),
        "### With everything called",
        _table(sorted((one for one in seen if _ours(one)), key=lambda one: -one.total_us)[:SHOWN], whole),
        "### C functions (cProfile)",
        _c_functions(counted),
    ]
    return "\n\n".join(parts)


def _ours(one: Seen) -> bool:
    return one.spent.file.startswith("src/")


def _by_layer(seen: Sequence[Seen], whole: float) -> str:
    layers: defaultdict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        layers[layer_of(one.spent.file)].append(one)
    rows = [
        (name, number(own), f"{own / whole:.0%}", number(sum(one.calls for one in layers[name])))
        for name, own in sorted(((n, sum(o.own_us for o in found)) for n, found in layers.items()), key=lambda p: -p[1])
    ]
    return grid(("layer", "own µs a step", "share", "calls a step"), rows)


def _table(seen: Sequence[Seen], whole: float) -> str:
    rows = [
        (
            _named(one.spent),
            number(one.own_us),
            number(one.total_us),
            f"{one.own_us / whole:.1%}",
            number(one.calls),
        )
        for one in seen
    ]
    return grid(("function", "own µs a step", "in total", "own share", "calls a step"), rows)


def _named(spent: Spent) -> str:
    name = spent.name.replace("<", "").replace(">", "").replace(".locals.", ".")
    return f"`{spent.file.removeprefix('src/surefoot/')}:{spent.line}` {name}"


def _c_functions(counted: Profile) -> str:
    found = sorted((one for one in counted.functions if not one.file), key=lambda one: -one.own)[: SHOWN // 2]
    rows = [
        (
            f"`{one.name.strip('<>')}`",
            number(one.own / counted.steps_done * 1e6),
            number(one.calls / counted.steps_done),
        )
        for one in found
    ]
    every = sum(one.calls for one in counted.functions) / counted.steps_done
    return f"{grid(('C function', 'own µs a step', 'calls a step'), rows)}\n\nAll calls a step: {every:,.0f}."


_HEAD = f"""# Where the time of a step goes

Made by `make bench ARGS=--profile`: {AT_ONCE} runs at once of {STEPS} steps, on SQLite. Times are CPU by samples of the
stack, each millisecond: another machine, or other work on it, moves them all. Calls a step are counted in a second run,
under cProfile, and do not depend on the machine; a coroutine counts each time it goes on. Own time of a Python function
contains the C functions that it calls. `README.md` says what a step is."""
