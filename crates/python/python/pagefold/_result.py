"""What commands answer."""

from __future__ import annotations

import functools
import json
from typing import Any, TYPE_CHECKING

from ._pagefold import table_of

if TYPE_CHECKING:
    from ._pagefold import Table


class Result:
    """What a command answers.

    `document` is its JSON object (docs/json.md), `rows` its rows as an Arrow table, and `runs` a table with a row for
    each run and everything that it measured, or None if the command keeps no runs. Consumers of Arrow take the result
    itself for `rows`.
    """

    def __init__(self, printed: str, runs: Table | None) -> None:
        self.document: dict[str, Any] = json.loads(printed)
        self.runs = runs

    @functools.cached_property
    def rows(self) -> Table:
        if "rows" not in self.document:
            raise ValueError(f"the document of {self.document['command']} has no rows")
        rows = [flat for row in self.document["rows"] for flat in flatten(row)]
        names = dict.fromkeys(name for row in rows for name in row)
        return table_of([(name, json.dumps([row.get(name) for row in rows])) for name in names])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


def flatten(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table that a row of a document is: those of a sweep have one for each metric that they show.

    What another object within says is in columns `KEY.NAME`, but for the values of axes, which are called as the axes.
    """
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if key == "values":
            flat.update(value)
        elif isinstance(value, dict):
            flat.update((f"{key}.{name}", inner) for name, inner in value.items())
        elif key != "shown":
            flat[key] = value
    return [{**flat, **shown} for shown in row.get("shown") or [{}]]
