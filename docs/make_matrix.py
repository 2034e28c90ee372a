"""Write the tables of docs/promise.md and promise.zh-CN.md anew from docs/failure_matrix.toml and its Chinese words.

python docs/make_matrix.py
"""

from __future__ import annotations

import tomllib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "failure_matrix.toml"
PAGES = {FOLDER / "promise.md": None, FOLDER / "promise.zh-CN.md": FOLDER / "failure_matrix.zh-CN.toml"}
"""Each page with the file of its words; without one they are those of DATA."""
BEGIN = "<!-- matrix: made by docs/make_matrix.py from docs/failure_matrix.toml; do not edit -->"
END = "<!-- end of the matrix -->"
CELL_TEST = "tests/docs/test_matrix.py::test_cell"


def table(text: str, words: str | None) -> str:
    """The matrix as Markdown, with the tests of each row below it. Raises KeyError where a word is missing."""
    data = tomllib.loads(text)
    said = tomllib.loads(words) if words is not None else _words_of(data)
    columns = data["columns"]
    heads = [said["header"], *(said["columns"][name] for name in columns)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    tests = []
    for row in data["rows"]:
        title = said["rows"][row["key"]]
        cells = [row["cells"].get(name) for name in columns]
        shown = [said["outcomes"][cell] if cell is not None else "–" for cell in cells]
        lines.append(f"| {title} | {' | '.join(shown)} |")
        further = "".join(f", `{name}`" for name in row.get("tests", ()))
        tests.append(f"- {title}: `{CELL_TEST}[{row['key']}-…]`{further}")
    return "\n".join([*lines, "", said["tests"], "", *tests])


def _words_of(data: dict[str, object]) -> dict[str, object]:
    outcomes, rows = data["outcomes"], data["rows"]
    assert isinstance(outcomes, dict) and isinstance(rows, list)
    return {
        "header": "What goes wrong",
        "tests": "The tests, by row:",
        "columns": data["columns"],
        "outcomes": {name: outcome["text"] for name, outcome in outcomes.items()},
        "rows": {row["key"]: row["title"] for row in rows},
    }


def page(text: str, data: str, words: str | None = None) -> str:
    """The page with the table in its place."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin and end, "the page has lost the marks of the table"
    return f"{head}{begin}\n\n{table(data, words)}\n\n{end}{tail}"


def made(path: Path) -> str:
    """One of PAGES as it should be."""
    words = PAGES[path]
    texts = [file.read_text(encoding="utf-8") for file in (path, DATA)]
    return page(*texts, None if words is None else words.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(made(path), encoding="utf-8")
