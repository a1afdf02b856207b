"""Tests of the Python package (`cargo xtask python` runs them).

PAGEFOLD_SWEEP_RUNS=1000 makes the sweep on two workers that long.
"""

import logging
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest

import numpy
import pagefold
import pandas
import polars
import pyarrow
import pyarrow.parquet
from distributed import Client, LocalCluster
from pagefold._dask import do
from pagefold._pagefold import call

# A process that a shell runs in the background begins with SIGINT ignored, and then Python takes no notice of it.
signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL = {"machine": "small", "memory": "60%", "quiet": True}
SWEEP = """
runs = {runs}
[run]
program = "{program}"
machine = "small"
memory = "{{memory}}%"
profile = "{{profile}}"
[axes]
profile = ["classic", "lazy"]
memory = [60, 80]
[show]
compare = "profile"
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Commands(Folder):
    def test_tables_have_what_the_document_has(self):
        result = pagefold.compare("zipf:2M", with_=["lazy"], runs=3, **SMALL)
        self.assertEqual((result.document["command"], result.document["profiles"]), ("compare", ["classic", "lazy"]))
        rows = pyarrow.table(result)
        self.assertEqual(rows.column_names, list(result.document["rows"][0]))
        self.assertEqual(rows.to_pylist(), result.document["rows"])
        runs = pyarrow.table(result.runs).to_pydict()
        self.assertEqual(runs["profile"], ["classic", "lazy"] * 3)
        self.assertEqual(runs["seed"], [1, 1, 2, 2, 3, 3])
        [time] = [row for row in result.document["rows"] if row["metric"] == "run_time" and row["profile"] == "lazy"]
        self.assertAlmostEqual(numpy.mean(runs["run_time"][1::2]), time["value"])

    def test_curve_has_a_row_for_each_size_and_profile(self):
        result = pagefold.curve("zipf:2M", memory=["60%", "90%"], runs=1, between=0, machine="small", quiet=True)
        self.assertEqual(len(result.rows), len(result.document["rows"]))
        self.assertEqual(polars.DataFrame(result)["profile"].to_list(), ["classic", "mglru"] * 2)

    def test_bad_input_is_a_value_error_with_the_line_of_the_command(self):
        with self.assertRaisesRegex(ValueError, "unknown knob.*did you mean 'vm.swappiness'"):
            pagefold.run("zipf:2M", set={"vm.swappines": 10}, **SMALL)
        with self.assertRaisesRegex(ValueError, "did you mean 'zipf"):
            pagefold.run("zippf:2M", **SMALL)
        with self.assertRaisesRegex(ValueError, "unexpected argument '--memori'"):
            pagefold.run("zipf:2M", memori="60%")
        with self.assertRaisesRegex(ValueError, "unknown program '--help'"):
            pagefold.run("--help")

    def test_all_libraries_use_the_table_where_it_is(self):
        runs = pagefold.run("zipf:2M", runs=4, **SMALL).runs

        def address(table):
            return table.column("run_time").chunk(0).buffers()[1].address

        here = address(pyarrow.table(runs))
        self.assertEqual(address(pyarrow.table(runs)), here)
        self.assertEqual(address(pyarrow.table(polars.DataFrame(runs))), here)
        frame = pyarrow.table(runs).to_pandas(types_mapper=pandas.ArrowDtype)
        self.assertEqual(address(pyarrow.table({"run_time": pyarrow.array(frame["run_time"].array)})), here)

    def test_a_kept_result_is_read_again_and_written_as_parquet(self):
        out = self.folder / "out"
        result = pagefold.compare("zipf:2M", with_="lazy", runs=2, out=out, **SMALL)
        again = pagefold.read(out)
        self.assertEqual(again.document, result.document)
        pyarrow.parquet.write_table(pyarrow.table(again.runs), self.folder / "runs.parquet")
        self.assertEqual(pyarrow.parquet.read_table(self.folder / "runs.parquet"), pyarrow.table(result.runs))

    def test_ctrl_c_stops_a_command_which_then_goes_on_where_it_was(self):
        out, runs = self.folder / "out", 400
        kept = out / "runs.jsonl"

        def interrupt():
            # It also shows that other threads go on while a command runs.
            wait_for_lines(kept, 3)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            pagefold.run("zipf:2M", runs=runs, out=out, **SMALL)
        thread.join()
        before = kept.read_bytes().splitlines()
        self.assertLess(len(before), 1 + runs)
        self.assertEqual(len(pagefold.read(out).runs), len(before) - 1)
        self.assertEqual(len(pagefold.run("zipf:2M", runs=runs, out=out, **SMALL).runs), runs)
        self.assertEqual(kept.read_bytes().splitlines()[: len(before)], before)


class Programs(Folder):
    def test_arrays_run_as_an_import_of_the_same_numbers(self):
        pages = numpy.random.default_rng(1).integers(0, 2000, 20_000)
        text, trace = self.folder / "pages.txt", self.folder / "imported.pft"
        text.write_text("\n".join(map(str, pages)))
        call(["import", "--format", "pages", str(text), "-o", str(trace)])
        imported, program = pagefold.run(trace, **SMALL), pagefold.run(pagefold.Program(pages), **SMALL)
        self.assertEqual(pyarrow.table(imported.runs), pyarrow.table(program.runs))

    def test_stores_and_threads_are_as_the_arrays_say(self):
        pages = numpy.arange(3000)
        program = pagefold.Program(pages, writes=pages % 3 == 0, threads=pages % 2, backing="program")
        info = pagefold.info(program)
        self.assertEqual((info["totals"]["loads"], info["totals"]["stores"]), (2000, 1000))
        self.assertEqual(pagefold.run(program, **SMALL).document["work"]["classic"]["tasks"], 2)

    def test_other_arrays_are_refused(self):
        for arrays, options, expected in [
            (([0.5],), {}, "pages: the values are float64; make them uint64"),
            (([-1],), {}, "pages: -1 is negative"),
            (([1, 2], [True]), {}, "writes: an array with one value for each access"),
            (([1, 2], [1, 0]), {}, "writes: the values are int64; make them bool"),
            (([1, 1 << 40],), {}, "pages:1: expected a page number below 2\\^34, found 1099511627776"),
            ((numpy.array([], dtype="uint64"),), {}, "pages: no accesses in it"),
            (([1],), {"backing": "anno"}, "'anno' is none of program, anon and file"),
        ]:
            with self.subTest(expected), self.assertRaisesRegex(ValueError, expected):
                pagefold.Program(*arrays, **options)


class Sweeps(Folder):
    @classmethod
    def setUpClass(cls):
        # A worker that is killed is reported at length.
        options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
        workers = LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", **options)
        cls.addClassCleanup(workers.close)
        cls.client = Client(workers)
        cls.addClassCleanup(cls.client.close)

    def write(self, program, runs):
        file = self.folder / "sweep.toml"
        file.write_text(SWEEP.format(runs=runs, program=program))
        return file

    def assert_same(self, *folders):
        one, other = ({path.name: path.read_bytes() for path in (self.folder / name).iterdir()} for name in folders)
        self.assertEqual(one, other)

    def test_sweep_of_two_workers_of_which_one_is_killed_is_byte_identical_to_a_local_one(self):
        runs = int(os.environ.get("PAGEFOLD_SWEEP_RUNS", "24")) // 4
        program = pagefold.Program(numpy.arange(6_000) * 7919 % 1500, path=self.folder / "numbers.pft")
        file, spread = self.write(program.path, runs), self.folder / "spread"
        pagefold.sweep(file, self.folder / "local", quiet=True)
        pids, killed_after = self.client.run(os.getpid), []

        def kill():
            wait_for_lines(spread / "runs.jsonl", 1 + runs)
            killed_after.append(lines(spread / "runs.jsonl") - 1)
            os.kill(min(pids.values()), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        result = pagefold.sweep(file, spread, client=self.client)
        killer.join()
        self.assertLess(killed_after[0], 4 * runs)
        self.assertEqual(len(result.runs), 4 * runs)
        self.assertEqual(set(pyarrow.table(result)["profile"].to_pylist()), {"classic", "lazy"})
        self.assert_same("local", "spread")
        copies = self.client.run(lambda dask_worker: [*pathlib.Path(dask_worker.local_directory).glob("pagefold-*")])
        self.assertEqual(max(map(len, copies.values())), 1)

    def test_ctrl_c_keeps_runs_of_workers_and_a_sweep_without_them_goes_on(self):
        file, spread = self.write("zipf:2M", 4), self.folder / "spread"

        def interrupt():
            wait_for_lines(spread / "runs.jsonl", 3)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaisesRegex(KeyboardInterrupt, "interrupted; .* of 16 runs are kept"):
            pagefold.sweep(file, spread, client=self.client)
        thread.join()
        self.assertIn(len(pagefold.read(spread).runs), range(2, 16))
        pagefold.sweep(file, spread, quiet=True)
        pagefold.sweep(file, self.folder / "local", quiet=True)
        self.assert_same("local", "spread")

    def test_wrong_calls_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "this worker has Pagefold .* install the same on both"):
            do("", {}, "Pagefold 0.0.1 at commit 0")
        with self.assertRaisesRegex(ValueError, "jobs: the workers of the client say"):
            pagefold.sweep(self.write("zipf:2M", 1), self.folder / "out", client=self.client, jobs=2)


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(path, wanted):
    while lines(path) < wanted:
        time.sleep(0.002)


if __name__ == "__main__":
    unittest.main()
