"""Judge the built site: every page of the navigation is there, and no page loads anything from elsewhere.

python docs/check_site.py site
"""

from __future__ import annotations

import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
LINKED = {"stylesheet", "preload", "preconnect", "dns-prefetch", "modulepreload", "icon", "manifest"}
FETCHED_CLASSES = {"mermaid", "glightbox", "ace"}
"""Elements for which the theme's script would fetch a library from a content network."""


class Page(HTMLParser):
    """What a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.fetches: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a browser would ask for without a click."""
        given = {name: value or "" for name, value in attrs}
        if tag in LOADED and given.get(LOADED[tag]):
            self.loads.append(given[LOADED[tag]])
        if tag == "link" and LINKED & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        self.fetches += sorted(FETCHED_CLASSES & set(given.get("class", "").split()))


def faults_of(site: Path) -> list[str]:
    """What is wrong with the site; an empty list if nothing is."""
    faults = []
    for name in pages():
        if not (site / name).with_suffix(".html").is_file():
            faults.append(f"{name} was not built")
    built = sorted(site.rglob("*.html"))
    for path in built:
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        for load in page.loads:
            outside = load.startswith(("http:", "https:", "//"))
            there = outside or load.startswith(("data:", "/")) or (path.parent / load.split("?")[0]).is_file()
            if outside or not there:
                faults.append(f"{path.relative_to(site)} loads {load}{'' if outside else ', which is not there'}")
        faults += [
            f"{path.relative_to(site)} has a {name}, whose library comes from elsewhere" for name in page.fetches
        ]
    return faults or ([] if len(built) > 10 else [f"{site} has {len(built)} pages only"])


def pages() -> list[str]:
    """The pages that the navigation names."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    return [
        str(page)
        for part in project["nav"]
        for entries in part.values()
        for entry in entries
        for page in entry.values()
    ]


if __name__ == "__main__":
    found = faults_of(Path(sys.argv[1]))
    print("\n".join(found) or "the site loads nothing from elsewhere")
    sys.exit(bool(found))
