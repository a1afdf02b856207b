"""Programs of page numbers."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from typing import Any

import numpy

from ._pagefold import write_trace

# Accesses that are handed over at once.
PIECE = 1 << 20


class Program:
    """A program that accesses pages in the order of an array of page numbers (docs/imports.md, format `pages`).

    `writes` says which accesses are stores, and `threads` which thread makes each; `backing` is the command's --pages:
    program, anon or file. The program is kept in the file `path`, or in one that goes with this object.
    """

    def __init__(
        self,
        pages: Any,
        writes: Any = None,
        threads: Any = None,
        *,
        backing: str | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        pages = checked("pages", pages, numpy.uint64)
        others = [
            None if values is None else checked(name, values, wanted, len(pages))
            for name, values, wanted in [("writes", writes, numpy.bool_), ("threads", threads, numpy.uint64)]
        ]

        def piece(number: int) -> tuple[bytes, bytes, bytes] | None:
            begin = number * PIECE
            if begin >= len(pages):
                return None
            cut = slice(begin, begin + PIECE)
            writes, threads = (b"" if values is None else values[cut].tobytes() for values in others)
            return pages[cut].tobytes(), writes, threads

        if path is None:
            folder = tempfile.mkdtemp(prefix="pagefold-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            path = os.path.join(folder, "pages.pft")
        self.path = os.fspath(path)
        write_trace(self.path, backing, piece)

    def __fspath__(self) -> str:
        return self.path


def checked(name: str, values: Any, wanted: type, length: int | None = None) -> Any:
    """The values as an array of the type that is wanted; refuses others than it can hold."""
    values = numpy.asarray(values)
    if values.ndim != 1 or length not in (None, len(values)):
        raise ValueError(f"{name}: an array with one value for each access is needed")
    if values.dtype.kind not in ("b" if wanted is numpy.bool_ else "ui"):
        raise ValueError(f"{name}: the values are {values.dtype}; make them {wanted.__name__}")
    if values.dtype.kind == "i" and len(values) and values.min() < 0:
        raise ValueError(f"{name}: {values.min()} is negative")
    return values.astype(numpy.dtype(wanted).newbyteorder("<"), copy=False)
