"""Write the table of docs/promise.md anew from docs/failure_matrix.toml: `python docs/make_matrix.py`."""

from __future__ import annotations

import tomllib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "failure_matrix.toml"
PAGE = FOLDER / "promise.md"
BEGIN = "<!-- matrix: made by docs/make_matrix.py from docs/failure_matrix.toml; do not edit -->"
END = "<!-- end of the matrix -->"
CELL_TEST = "tests/docs/test_matrix.py::test_cell"


def table(text: str) -> str:
    """The matrix as Markdown, with the tests of each row below it."""
    data = tomllib.loads(text)
    columns = data["columns"]
    lines = [f"| What goes wrong | {' | '.join(columns.values())} |", "|---" * (len(columns) + 1) + "|"]
    tests = []
    for row in data["rows"]:
        cells = [row["cells"].get(name) for name in columns]
        shown = [data["outcomes"][cell]["text"] if cell is not None else "–" for cell in cells]
        lines.append(f"| {row['title']} | {' | '.join(shown)} |")
        further = "".join(f", `{name}`" for name in row.get("tests", ()))
        tests.append(f"- {row['title']}: `{CELL_TEST}[{row['key']}-…]`{further}")
    return "\n".join([*lines, "", "The tests, by row:", "", *tests])


def page(text: str, data: str) -> str:
    """The page with the table in its place."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin and end, f"{PAGE.name} has lost the marks of the table"
    return f"{head}{begin}\n\n{table(data)}\n\n{end}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), DATA.read_text(encoding="utf-8")), encoding="utf-8")
