"""Pagefold from Python: the commands of `pagefold` as functions, with results as Arrow (docs/python.md)."""

from __future__ import annotations

import os
from typing import Any, TYPE_CHECKING, Union

from ._pagefold import RunFailed, Table, call
from ._program import Program
from ._result import Result

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "Program", "Result", "RunFailed", "Table", "command", "compare", "curve", "info", "read", "run", "sweep",
]

# Of a failed command that had results to show, as `raise` sets it.
RunFailed.result = None


_Path = Union[str, "os.PathLike[str]"]


def _words(name: str, positional: tuple[_Path, ...], options: dict[str, Any]) -> list[str]:
    """The words of a command: options are called as on the command line, with _ for -."""
    words = [name, "--json"]
    for key, value in options.items():
        flag = "--" + key.rstrip("_").replace("_", "-")
        if isinstance(value, dict):
            value = [f"{knob}={setting}" for knob, setting in value.items()]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(flag)
            elif one is not None and one is not False:
                words.append(f"{flag}={os.fspath(one) if hasattr(one, '__fspath__') else one}")
    return [*words, "--", *(os.fspath(one) for one in positional)]


def _answer(words: list[str]) -> Result:
    printed, runs, failed = call(words)
    result = Result(printed, runs)
    if failed is not None:
        failed.result = result
        raise failed
    return result


def command(name: str, *arguments: _Path, **options: Any) -> Result:
    """Any command that prints a JSON object, as `command("bound", "zipf:64M", memory="50%")`."""
    return _answer(_words(name, arguments, options))


def run(program: _Path, **options: Any) -> Result:
    """`pagefold run`: run a program under one profile."""
    return command("run", program, **options)


def compare(program: _Path, **options: Any) -> Result:
    """`pagefold compare`: run a program under several profiles; `with_` names those besides `base`."""
    return command("compare", program, **options)


def curve(program: _Path, **options: Any) -> Result:
    """`pagefold curve`: a program with more and less memory."""
    return command("curve", program, **options)


def sweep(file: _Path, out: _Path, *, client: Client | None = None, **options: Any) -> Result:
    """`pagefold sweep`: all combinations that a file describes, here or on the workers of a Dask client."""
    if client is None:
        return command("sweep", file, out=out, **options)
    if "jobs" in options:
        raise ValueError("jobs: the workers of the client say how many runs are done at once; leave it out")
    from ._dask import spread

    return Result(*spread(_words("sweep", (file,), {"out": out, **options}), client))


def read(directory: _Path) -> Result:
    """`pagefold report`: the result that a directory of run, compare or sweep keeps."""
    return command("report", directory)


def info(trace: _Path) -> dict[str, Any]:
    """`pagefold info`: what is in a trace, as a dict."""
    return command("info", trace).document
