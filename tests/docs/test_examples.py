"""The Python blocks of the documentation: each compiles, and one behind `<!-- run -->` is run as it stands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.places import Place

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(?P<run><!-- run -->\n\s*)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_SECONDS_MAX = 60
FILE = "sqlite:///app.db"


@dataclass(frozen=True)
class Block:
    """One Python block of a document."""

    path: Path
    line: int
    code: str
    runs: bool

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def _blocks() -> list[Block]:
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [block for path in paths for block in blocks_of(path)]


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(path, text.count("\n", 0, match.start("code")), match["code"], match["run"] is not None)
        for match in BLOCK.finditer(text)
    ]


def test_the_readme_shows_an_agent_and_a_block_that_runs() -> None:
    blocks = blocks_of(ROOT / "README.md")
    assert any("Agent(" in block.code for block in blocks)
    assert any(block.runs for block in blocks)


def test_both_readmes_hold_the_same_code() -> None:
    english, chinese = (blocks_of(ROOT / name) for name in ("README.md", "README.zh-CN.md"))
    assert english
    assert [_without_comments(block) for block in english] == [_without_comments(block) for block in chinese]


def _without_comments(block: Block) -> str:
    return ast.dump(compile(block.code, block.place, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))


def test_blocks_compile() -> None:
    for block in _blocks():
        compile(block.code, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def test_runnable_blocks_name_one_file() -> None:
    named = {url for block in _blocks() if block.runs for url in re.findall(r"sqlite:///[^\"]*", block.code)}
    assert named == {FILE}, "what runs on PostgreSQL has another URL in its place"


def test_runnable_blocks_run(place: Place) -> None:
    for number, block in enumerate(block for block in _blocks() if block.runs):
        own = place.inside(str(number))
        script = own.folder / "example.py"
        # Nothing but the URL changes for a reader who uses the other store.
        code = block.code if own.kind == "sqlite" else block.code.replace(FILE, own.url)
        script.write_text(code, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            cwd=own.folder,
            env={**os.environ, **own.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
        )
        assert done.returncode == 0, f"{block.place} failed:\n{done.stdout}\n{done.stderr}"
