"""DBOS's kill test: a workflow whose last step posts a comment. Started again, DBOS.launch() recovers it."""

from __future__ import annotations

import os
import sys

from dbos import DBOS, DBOSConfig, SetWorkflowID

from benchmarks.programs.comment import TEXT, Story, ended

STORY = Story(sys.argv[1:])


def _read_page(number: int) -> str:
    return TEXT


def _post_comment() -> object:
    return STORY.post()["id"]


read_page = DBOS.step()(_read_page)
post_comment = DBOS.step()(_post_comment)


def _comment(steps: int) -> object:
    for number in range(steps):
        read_page(number)
    return post_comment()


comment = DBOS.workflow()(_comment)


def run() -> object:
    """Start the workflow, or attach to the recovered one, and wait for its end."""
    url = f"sqlite:///{STORY.folder / 'dbos.db'}"
    DBOS(config=DBOSConfig(name="kill", system_database_url=url, log_level="ERROR", console_log_level="ERROR"))
    DBOS.launch()
    with SetWorkflowID("the-one"):
        handle = DBOS.start_workflow(comment, STORY.steps)
    return handle.get_result()


if __name__ == "__main__":
    ended(run)
    os._exit(0)
