"""Shows that check.py tells right from wrong output. Plain asserts: `python test_check.py`."""

import json
import os
import struct
import subprocess
import sys
import tempfile
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from check import READERS, References, check

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0123))[0]
ROWS = [
    {"id": "a", "n": 1, "score": 0.5},
    {"id": "a", "n": 1, "score": 0.5},
    {"id": "b", "n": None, "score": -0.0},
    {"id": None, "n": 3, "score": NAN},
    {"id": "naïve 'quoted'", "n": 4, "score": None},
]
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("score", pa.float64())])


class Lake:
    """A reference, and an output directory to write right or wrong things to."""

    def __init__(self, folder, reference=ROWS, schema=SCHEMA):
        # Under a hidden folder with an awkward name, as temporary folders are: only what is below the root counts.
        self.base = Path(folder, ".tmp it's [here]")
        self.out = self.base / "out"
        self.base.mkdir()
        self.reference = self.base / "reference.parquet"
        pq.write_table(pa.Table.from_pylist(reference, schema), self.reference)

    def write(self, name, rows, schema=SCHEMA):
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema), path)

    def check(self, **options):
        return check(References(), self.out, options.pop("reference", self.reference), **options)

    def is_right(self, **options):
        answer = self.check(**options)
        assert answer["ok"] and answer["why"] == "", answer
        return answer

    def is_wrong(self, *words, **options):
        answer = self.check(**options)
        assert not answer["ok"], answer
        for word in words:
            assert word in answer["why"], (word, answer["why"])
        return answer


def every_reader(text):
    return [f"{name}: {text}" for name in READERS]


def test_equal_in_any_order_and_any_number_of_files(lake):
    lake.write("b.parquet", ROWS[3:])
    lake.write("sub/a.parquet", list(reversed(ROWS[:3])))
    answer = lake.is_right()
    assert answer["rows"] == dict.fromkeys(READERS, len(ROWS)), answer
    lake.is_right(sub=True)


def test_order_of_columns_is_free(lake):
    lake.write("a.parquet", ROWS, pa.schema(list(reversed(SCHEMA))))
    lake.is_right()


def test_string_encodings_are_one_type(lake):
    for type_ in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        lake.write("a.parquet", ROWS, SCHEMA.set(0, pa.field("id", type_)))
        lake.is_right()


def test_missing_row(lake):
    lake.write("a.parquet", ROWS[:4])
    lake.is_wrong(*every_reader("1 row missing: 1 x (id=\"naïve 'quoted'\", n=4, score=None)"))
    lake.is_right(sub=True)


def test_extra_row(lake):
    lake.write("a.parquet", ROWS + [{"id": "z", "n": 9, "score": 1.5}])
    extra = every_reader("1 row too many: 1 x (id='z', n=9, score=1.5)")
    lake.is_wrong(*extra)
    lake.is_wrong(*extra, sub=True)


def test_doubled_row(lake):
    lake.write("a.parquet", ROWS)
    lake.write("b.parquet", ROWS[:1])
    doubled = every_reader("1 row too many: 1 x (id='a', n=1, score=0.5)")
    lake.is_wrong(*doubled)
    lake.is_wrong(*doubled, sub=True)


def test_doubled_row_in_place_of_another(lake):
    lake.write("a.parquet", ROWS[:4] + ROWS[2:3])
    assert lake.is_wrong("missing", "too many")["rows"] == dict.fromkeys(READERS, len(ROWS))


def test_changed_value(lake):
    lake.write("a.parquet", [*ROWS[:2], {**ROWS[2], "n": 7}, *ROWS[3:]])
    lake.is_wrong(*every_reader("1 row missing: 1 x (id='b', n=None, score=-0.0)"))
    lake.is_wrong("1 row too many: 1 x (id='b', n=7, score=-0.0)")


def test_floats_are_equal_by_bits(lake):
    lake.write("a.parquet", [*ROWS[:2], {**ROWS[2], "score": 0.0}, *ROWS[3:]])
    lake.is_wrong(*every_reader("1 row missing"))
    lake.write("a.parquet", [*ROWS[:3], {**ROWS[3], "score": float("nan")}, *ROWS[4:]])
    lake.is_wrong(*every_reader("1 row missing"))


def test_many_differences_are_counted_and_cut(lake):
    lake.write("a.parquet", [{"id": f"new {n}", "n": n, "score": None} for n in range(10)])
    lake.is_wrong("5 rows missing", "; and 1 more", "10 rows too many", "; and 7 more")


def test_columns(lake):
    lake.write("a.parquet", ROWS, SCHEMA.remove(1))
    lake.is_wrong(*every_reader("column n is missing"))
    lake.write("a.parquet", ROWS, SCHEMA.append(pa.field("more", pa.int8())))
    lake.is_wrong(*every_reader("column more is extra"))
    lake.write("a.parquet", ROWS, SCHEMA.set(1, pa.field("n", pa.int32())))
    lake.is_wrong(*every_reader("column n is int32, not int64 as in the reference"))


def test_files_that_disagree_on_columns(lake):
    lake.write("a.parquet", ROWS[:2])
    lake.write("b.parquet", ROWS[2:], SCHEMA.append(pa.field("more", pa.int8())))
    lake.is_wrong("pyarrow cannot read it: Wrong: b.parquet: column more is extra")


def test_stray_files(lake):
    strays = ["_SUCCESS", "a.crc", ".hidden.parquet", "_x/a.parquet", ".staging/a.parquet", "deep/er/part.parquet.tmp"]
    lake.write("a.parquet", ROWS)
    for stray in strays:
        path = lake.out / stray
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([], SCHEMA), path)
        top = Path(stray).parts[0] if stray[0] in "._" else stray
        lake.is_wrong(f"not a visible Parquet file: {top}")
        path.unlink()
        if path.parent not in (lake.out, lake.out / "deep/er"):
            path.parent.rmdir()
    lake.is_right()


def test_hidden_folder_is_stray_even_if_empty(lake):
    lake.write("a.parquet", ROWS)
    (lake.out / ".staging").mkdir()
    lake.is_wrong("not a visible Parquet file: .staging")


def test_broken_file(lake):
    lake.write("a.parquet", ROWS)
    (lake.out / "b.parquet").write_bytes(b"PAR1 cut")
    lake.is_wrong(*(f"{name} cannot read it" for name in READERS))


def test_missing_or_empty_directory_is_an_empty_table(lake):
    missing = every_reader("5 rows missing")
    lake.is_wrong(*missing)
    lake.out.mkdir()
    lake.is_wrong(*missing)
    for right in ({"sub": True}, {"allow_missing": True}):
        assert lake.is_right(**right)["rows"] == dict.fromkeys(READERS, 0)
    pq.write_table(pa.Table.from_pylist([], SCHEMA), lake.reference)
    lake.is_right()


def test_allow_missing_is_all_or_nothing(lake):
    lake.write("a.parquet", ROWS[:1])
    lake.is_wrong(*every_reader("4 rows missing"), allow_missing=True)
    lake.write("a.parquet", [])
    lake.is_wrong(*every_reader("5 rows missing"), allow_missing=True)


def test_partitioned_output(lake):
    values = ["2026-01-01", "007", "a b/c", None]
    folders = ["2026-01-01", "007", "a%20b%2Fc", "__HIVE_DEFAULT_PARTITION__"]
    schema = SCHEMA.append(pa.field("key", pa.string()))
    rows = [{**row, "key": key} for key in values for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows, schema), lake.reference)
    for folder in folders:
        lake.write(f"key={folder}/part 1 [x] 100%.parquet", ROWS)
    lake.is_right(partitioned=True)
    lake.is_wrong(*every_reader("column key is missing"))
    (lake.out / "key=007").rename(lake.out / "key=7")
    lake.is_wrong(*every_reader("5 rows missing"), partitioned=True)


def test_partition_values_are_compared_as_text(lake):
    schema = SCHEMA.append(pa.field("day", pa.date32()))
    pq.write_table(pa.Table.from_pylist([{**row, "day": date(2026, 1, 2)} for row in ROWS], schema), lake.reference)
    lake.write("day=2026-01-02/a.parquet", ROWS)
    lake.is_right(partitioned=True)


def test_reference_directory(lake):
    lake.write("a.parquet", ROWS)
    reference = lake.base / "parts"
    reference.mkdir()
    for number, rows in enumerate((ROWS[:2], ROWS[2:])):
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), reference / f"{number}.parquet")
    (reference / "_SUCCESS").touch()
    lake.is_right(reference=reference)
    (reference / "0.parquet").unlink()
    lake.is_wrong(*every_reader("2 rows too many"), reference=reference)


def test_reference_directory_with_hive_folders(lake):
    reference = lake.base / "lake"
    for day in ("2026-01-02", "2026-01-03"):
        (reference / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), reference / f"day={day}" / "a.parquet")
    rows = [{**row, "day": date(2026, 1, day)} for day in (2, 3) for row in ROWS]
    lake.write("a.parquet", rows, SCHEMA.append(pa.field("day", pa.date32())))
    lake.is_right(reference=reference)
    lake.write("a.parquet", rows[1:], SCHEMA.append(pa.field("day", pa.date32())))
    lake.is_wrong(*every_reader("1 row missing: 1 x (day='2026-01-02', id='a'"), reference=reference)


def test_every_type(lake):
    columns = {
        "bytes": pa.array([b"\x00", None]),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "flag": pa.array([True, None]),
        "small": pa.array([-1, None], pa.int8()),
        "large": pa.array([2**64 - 1, None], pa.uint64()),
        "single": pa.array([-0.0, None], pa.float32()),
        "day": pa.array([date(2026, 1, 2), None]),
        "milli": pa.array([1, None], pa.timestamp("ms")),
        "nano": pa.array([1, None], pa.timestamp("ns")),
        "instant": pa.array([datetime(2026, 1, 2, tzinfo=timezone.utc), None], pa.timestamp("us", "UTC")),
        "clock": pa.array([1, None], pa.time32("ms")),
        "money": pa.array([Decimal("1.10"), None], pa.decimal128(9, 2)),
        "list": pa.array([[1.5, -0.0, None], None], pa.list_(pa.float64())),
        "struct": pa.array([{"y": "q", "x": 1}, None], pa.struct([("y", pa.string()), ("x", pa.int32())])),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
    }
    pq.write_table(pa.table(columns), lake.reference)
    lake.out.mkdir()
    pq.write_table(pa.table(columns), lake.out / "a.parquet")
    lake.is_right()
    for name, column in columns.items():
        changed = pa.concat_arrays([column.slice(1), column.slice(1)])
        pq.write_table(pa.table({**columns, name: changed}), lake.out / "a.parquet")
        lake.is_wrong(*every_reader("1 row missing"))


def test_reference_is_read_again_when_it_changed(lake):
    references = References()
    lake.write("a.parquet", ROWS)
    assert check(references, lake.out, lake.reference)["ok"]
    pq.write_table(pa.Table.from_pylist(ROWS[1:], SCHEMA), lake.reference)
    os.utime(lake.reference, (1, 1))
    assert not check(references, lake.out, lake.reference)["ok"]


def test_command(lake):
    script = Path(__file__).with_name("check.py")
    command = [sys.executable, script, "--out", lake.out, "--reference", lake.reference]
    run = lambda *more: subprocess.run([*command, *more], capture_output=True, text=True)
    lake.write("a.parquet", ROWS[:4])
    wrong = run()
    assert wrong.returncode == 1 and "duckdb: 1 row missing" in wrong.stdout, wrong
    assert run("--sub", "--readers", "duckdb,polars").returncode == 0
    assert run("--readers", "excel").returncode == 2


def test_serve(lake):
    lake.write("a.parquet", ROWS)
    right = {"out": str(lake.out), "reference": str(lake.reference), "sub": False, "partitioned": False}
    requests = [
        right,
        {**right, "readers": ["duckdb"]},
        {**right, "reference": str(lake.base / "nowhere")},
        {**right, "readers": ["excel"]},
        {"out": str(lake.base / "nothing"), "reference": str(lake.reference)},
    ]
    lines = [json.dumps(request) for request in requests] + ["no JSON"]
    command = [sys.executable, Path(__file__).with_name("check.py"), "--serve"]
    served = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in served.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == [True, True, False, False, False, False], answers
    assert answers[0]["rows"] == dict.fromkeys(READERS, 5)
    assert answers[1]["rows"] == {"duckdb": 5}
    assert "there is no reference" in answers[2]["why"]
    assert "unknown readers excel" in answers[3]["why"]
    assert "duckdb: 5 rows missing" in answers[4]["why"]
    assert "bad request" in answers[5]["why"]


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    for name, test in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Lake(folder))
            except BaseException:
                print(f"{name} failed", file=sys.stderr)
                raise
    print(f"{len(tests)} tests passed")


if __name__ == "__main__":
    main()
    # A thread that is still running at the end of the interpreter would end it as a failure.
    sys.stdout.flush()
    os._exit(0)
