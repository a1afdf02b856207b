"""A sweep on the workers of a Dask client: one process keeps the directory, workers do runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid

from distributed import Client, Future, as_completed, get_worker

from ._pagefold import Spread, Table, build, work


def spread(words: list[str], client: Client) -> tuple[str, Table | None]:
    """Do the runs of a sweep that are left. Returns what the command prints, and the table of its runs."""
    with contextlib.closing(Spread(words)) as sweep:
        try:
            do_all(sweep, client)
            complete = True
        except KeyboardInterrupt:
            complete = False
        # Of an incomplete sweep it raises the interrupt again, with a line that says what is kept.
        return sweep.finish(complete)


def do_all(sweep: Spread, client: Client) -> None:
    """Have workers do the runs that are left, and keep each."""
    files, sweep_id, mine = send(sweep.files(), client), uuid.uuid4().hex, build()
    runs: dict[Future, str] = {}
    try:
        for number, asked in enumerate(sweep.left()):
            # Those that come first in the sweep are done first.
            runs[client.submit(do, asked, files, mine, key=f"pagefold-{sweep_id}-{number}", priority=-number)] = asked
        for done in as_completed(list(runs)):
            # Raises what a failed run has raised, or that several workers were lost with this one.
            sweep.keep(runs.pop(done), done.result())
    finally:
        client.cancel(list(runs))


def send(names: list[str], client: Client) -> dict[str, tuple[str, str, Future]]:
    """Send files to each worker once; one that comes later gets them from another.

    By name: the hash of the content, how the name ends, and the content.
    """
    files = {}
    for name in names:
        with open(name, "rb") as file:
            content = file.read()
        digest = hashlib.sha256(content).hexdigest()
        files[name] = (digest, os.path.splitext(name)[1], client.scatter(content, broadcast=True))
    return files


def do(asked: str, files: dict[str, tuple[str, str, bytes]], wanted: str) -> str:
    """On a worker: do one run."""
    if build() != wanted:
        raise RuntimeError(f"this worker has {build()}, and the sweep is of {wanted}: install the same on both")
    return work(asked, {name: copy(*file) for name, file in files.items()})


def copy(digest: str, ending: str, content: bytes) -> str:
    """The path of a worker's file with this content."""
    path = os.path.join(get_worker().local_directory, f"pagefold-{digest}{ending}")
    if not os.path.exists(path):
        # Of threads that come at once each writes one, and the last stays.
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    return path
