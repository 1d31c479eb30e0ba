"""Reads an output directory with readers that know nothing of lakemark and compares it with a reference.

    check.py --out DIR --reference FILE_OR_DIR [--sub] [--allow-missing] [--partitioned] [--table delta] [--readers a,b]
    check.py --serve

The output is exact if every reader, given the plain directory, finds the same multiset of rows as the reference, and if
nothing but visible Parquet files lies under it. Exit code 0: it is; 1: it is not, and stdout says how.

- Columns are compared by name, their order is free. All encodings of strings are one type, so are all of binary, lists,
  and units of time; integers and floats keep their width. Null equals null, floats are equal by bits.
- `--sub`: the output may be a part of the reference (no row more often than there).
- `--allow-missing`: a missing or empty DIR is right whatever the reference holds: all or nothing.
- `--partitioned`: `key=value` folders are columns, compared as text. Those of a reference directory always are.
- A missing or empty DIR is an empty table.
- `--table delta`: DIR is a Delta table, read through its log; whatever else lies under it is no part of it.
- `--table csv` or `json`: DIR is a directory of such files.
- `--table iceberg`: DIR is the database of a catalog, whose table `lake.docs` is read.

`--serve` answers requests, one JSON object a line, on stdin and stdout until stdin ends. A request has the options'
names, and `readers` as a list; only `out` and `reference` are required:

    {"out": "…", "reference": "…", "sub": false, "allow_missing": false, "partitioned": false, "readers": ["duckdb"]}
    {"ok": false, "why": "duckdb: 1 row missing: …", "rows": {"duckdb": 99}}

A request `{"iceberg": "DATABASE"}` is answered with the live files of the table and the number of its snapshots.

References are kept in memory by path, size and time of modification: write a reference once, under a name of its own.
"""

import argparse
import glob
import heapq
import json
import os
import struct
import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import deltalake
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

EXAMPLES = 3
KEPT_REFERENCES = 16
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
FLOAT_BITS = {
    "halffloat": (pa.int16(), "<h", "<e"),
    "float": (pa.int32(), "<i", "<f"),
    "double": (pa.int64(), "<q", "<d"),
}


# Values: from Arrow to something that is equal exactly if the values are.


def kind(type_):
    """The name of a type, one for all of its encodings."""
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return kind(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return kind(type_.storage_type)
    if is_string(type_):
        return "string"
    if is_binary(type_):
        return "binary"
    if pa.types.is_timestamp(type_):
        return "timestamp with time zone" if type_.tz else "timestamp"
    if pa.types.is_time(type_):
        return "time"
    if pa.types.is_date(type_):
        return "date"
    if pa.types.is_decimal(type_):
        return "decimal"
    if pa.types.is_map(type_):
        return f"list<struct<key: {kind(type_.key_type)}, value: {kind(type_.item_type)}>>"
    if is_list(type_):
        return f"list<{kind(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(sorted(f'{field.name}: {kind(field.type)}' for field in type_))}>"
    return str(type_)


def values(array):
    """The values of an array as hashable Python objects: floats as their bits, times as nanoseconds."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        return values(array.dictionary_decode())
    if pa.types.is_run_end_encoded(type_):
        return values(pc.run_end_decode(array))
    if isinstance(type_, pa.BaseExtensionType):
        return values(array.storage)
    if str(type_) in FLOAT_BITS:
        return array.view(FLOAT_BITS[str(type_)][0]).to_pylist()
    if pa.types.is_date(type_):
        return array.cast(pa.date32()).to_pylist()
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        scale = NANOSECONDS[type_.unit]
        integers = array.view(pa.int32() if pa.types.is_time32(type_) else pa.int64())
        return [None if value is None else value * scale for value in integers.to_pylist()]
    if pa.types.is_map(type_) or is_list(type_):
        return [tuple(values(scalar.values)) if scalar.is_valid else None for scalar in array]
    if pa.types.is_struct(type_):
        fields = sorted(zip((field.name for field in type_), map(values, array.flatten())))
        rows = zip(*(column for _, column in fields))
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist())]
    return array.to_pylist()


def is_string(type_):
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def is_binary(type_):
    of_any_size = pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_)
    return of_any_size or pa.types.is_fixed_size_binary(type_)


def is_list(type_):
    views = pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_)
    return views or pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)


def shown(type_name, value):
    """A value for people."""
    if value is not None and type_name in FLOAT_BITS:
        _, bits, number = FLOAT_BITS[type_name]
        return repr(struct.unpack(number, struct.pack(bits, value))[0])
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# Rows: a table as a multiset.


class Wrong(Exception):
    """The output, or what was asked, is not as it must be."""


@dataclass
class Rows:
    """A multiset of rows. `kinds` gives the columns in the order of the tuples; None while no table was seen."""

    kinds: dict | None
    counts: Counter

    @classmethod
    def of(cls, tables, text):
        """The rows of all named `tables`, the columns in `text` as strings. They must agree on their columns."""
        rows = cls(None, Counter())
        for name, table in tables:
            rows.add(name, table, text)
        return rows

    def add(self, name, table, text):
        names = sorted(table.column_names)
        doubled = sorted({column for column in names if names.count(column) > 1})
        if doubled:
            raise Wrong(f"{name}: columns occur twice: {', '.join(doubled)}")
        columns = [as_text(table[column]) if column in text else table[column] for column in names]
        kinds = {column: kind(data.type) for column, data in zip(names, columns)}
        if self.kinds is not None and self.kinds != kinds:
            raise Wrong(f"{name}: {columns_differ(kinds, self.kinds, 'the files before it')}")
        self.kinds = kinds
        if columns:
            self.counts.update(zip(*([v for chunk in data.chunks for v in values(chunk)] for data in columns)))
        else:
            self.counts[()] += table.num_rows

    def total(self):
        return self.counts.total()

    def shown(self, counts, word):
        """`counts` of rows like these, as `2 rows missing: …`."""
        total = counts.total()
        texts = []
        for row, count in heapq.nsmallest(EXAMPLES, counts.items(), key=repr):
            cells = (f"{name}={shown(type_, value)}" for (name, type_), value in zip(self.kinds.items(), row))
            texts.append(f"{count} x ({', '.join(cells)})")
        more = len(counts) - len(texts)
        return f"{total} row{'s' * (total != 1)} {word}: {'; '.join(texts)}{f'; and {more} more' if more else ''}"


def as_text(column):
    return column if is_string(column.type) else column.cast(pa.string())


def columns_differ(found, wanted, whose):
    """How the columns `found` differ from those `wanted`; empty if they do not."""
    told = [f"column {name} is missing" for name in wanted if name not in found]
    told += [f"column {name} is extra" for name in found if name not in wanted]
    both = [name for name in wanted if found.get(name, wanted[name]) != wanted[name]]
    told += [f"column {name} is {found[name]}, not {wanted[name]} as in {whose}" for name in both]
    return "; ".join(told)


def difference(found, reference, sub):
    """What is wrong with the rows `found`; empty if nothing is."""
    if found.kinds is not None and reference.kinds is not None and found.kinds != reference.kinds:
        return columns_differ(found.kinds, reference.kinds, "the reference")
    told = []
    missing = Counter() if sub else reference.counts - found.counts
    extra = found.counts - reference.counts
    if missing:
        told.append(reference.shown(missing, "missing"))
    if extra:
        told.append(found.shown(extra, "too many"))
    return "; ".join(told)


# Directories.


@dataclass
class Directory:
    """What lies under a root: Parquet files, and what has no business there; the keys of `key=value` folders."""

    root: Path
    files: list
    strays: list
    keys: list

    @classmethod
    def list(cls, root):
        found = cls(Path(root), [], [], [])
        if found.root.exists() and not found.root.is_dir():
            raise Wrong(f"{root} is not a directory")
        for folder, folders, files in os.walk(found.root, onerror=fail):
            for path in (Path(folder, name) for name in folders):
                if path.is_symlink() or (hidden(path.name) and "=" not in path.name):
                    found.strays.append(path)
            for path in (Path(folder, name) for name in files):
                if path.suffix == ".parquet":
                    found.files.append(path)
                if path.suffix != ".parquet" or hidden(path.name):
                    found.strays.append(path)
        found.files.sort()
        found.keys = sorted({key for path in found.files for key in found.partition(path)})
        return found

    def partition(self, path):
        """The values that the folders of a file give."""
        pairs = (part.split("=", 1) for part in path.relative_to(self.root).parent.parts if "=" in part)
        return {key: None if value == NULL_PARTITION else unquote(value) for key, value in pairs}


def hidden(name):
    return name.startswith((".", "_"))


def fail(error):
    if not isinstance(error, FileNotFoundError):
        raise error


# Readers: each takes a directory with at least one Parquet file and the keys of its hive folders, if they are columns,
# and gives named tables.


def by_duckdb(directory, keys):
    settings = {"enable_external_file_cache": False, "autoinstall_known_extensions": False}
    with duckdb.connect(config=settings) as connection:
        pattern = f"{glob.escape(str(directory.root))}/**/*.parquet".replace("'", "''")
        hive = "hive_partitioning = true, hive_types_autocast = false" if keys else "hive_partitioning = false"
        yield "all", connection.sql(f"SELECT * FROM read_parquet('{pattern}', {hive})").to_arrow_table()


def by_polars(directory, keys):
    schema = {key: polars.String for key in keys} or None
    frame = polars.scan_parquet(directory.root, glob=False, hive_partitioning=bool(keys), hive_schema=schema)
    yield "all", frame.collect().to_arrow(compat_level=polars.CompatLevel.oldest())


def by_pyarrow(directory, keys):
    for path in directory.files:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
        partition = directory.partition(path)
        for key in keys:
            table = table.append_column(key, pa.array([partition.get(key)] * table.num_rows, pa.string()))
        yield str(path.relative_to(directory.root)), table


def by_pyarrow_dataset(directory, keys):
    hive = pa.dataset.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive") if keys else None
    yield "all", pa.dataset.dataset(directory.root, format="parquet", partitioning=hive).to_table()


def by_deltalake(directory, keys):
    yield "all", pa.table(deltalake.DeltaTable(directory.root).to_pyarrow_table())


def by_duckdb_of_delta(directory, keys):
    """DuckDB over the files that the log names: what is in them, not only what the log says of them."""
    files = deltalake.DeltaTable(directory.root).file_uris()
    settings = {"enable_external_file_cache": False, "autoinstall_known_extensions": False}
    with duckdb.connect(config=settings) as connection:
        if files:
            yield "all", connection.read_parquet(files, hive_partitioning=False).to_arrow_table()


def iceberg_table(database):
    return SqlCatalog("default", uri=f"sqlite:///{database.root}").load_table("lake.docs")


def by_pyiceberg(database, keys):
    yield "all", iceberg_table(database).scan().to_arrow()


def by_duckdb_of_iceberg(database, keys):
    """DuckDB over the files that the manifests name: what is in them, not only what is said of them."""
    files = [task.file.file_path.removeprefix("file://") for task in iceberg_table(database).scan().plan_files()]
    settings = {"enable_external_file_cache": False, "autoinstall_known_extensions": False}
    with duckdb.connect(config=settings) as connection:
        if files:
            yield "all", connection.read_parquet(files, hive_partitioning=False).to_arrow_table()


def files_of(directory, ending):
    return sorted(str(path) for path in directory.root.rglob(f"*.{ending}"))


def by_duckdb_of_text(read, directory, keys):
    settings = {"enable_external_file_cache": False, "autoinstall_known_extensions": False}
    with duckdb.connect(config=settings) as connection:
        for path in files_of(directory, read):
            rows = connection.read_csv(path) if read == "csv" else connection.read_json(path)
            yield path, rows.to_arrow_table()


def by_pyarrow_of_csv(directory, keys):
    convert = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    for path in files_of(directory, "csv"):
        yield path, pyarrow.csv.read_csv(path, convert_options=convert, parse_options=parse)


def by_pyarrow_of_json(directory, keys):
    for path in files_of(directory, "json"):
        yield path, pyarrow.json.read_json(path)


TABLES = {
    "csv": {"duckdb": partial(by_duckdb_of_text, "csv"), "pyarrow": by_pyarrow_of_csv},
    "json": {"duckdb": partial(by_duckdb_of_text, "json"), "pyarrow": by_pyarrow_of_json},
    "delta": {"deltalake": by_deltalake, "duckdb": by_duckdb_of_delta},
    "iceberg": {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb_of_iceberg},
}
READERS = {"duckdb": by_duckdb, "polars": by_polars, "pyarrow": by_pyarrow, "pyarrow-dataset": by_pyarrow_dataset}


# The check.


class References:
    """The references read last, by what they are made of."""

    def __init__(self):
        self.kept = OrderedDict()

    def get(self, path, text):
        """The rows of a Parquet file or a directory of them, the columns in `text` and its hive keys as strings."""
        path = Path(path)
        if not path.exists():
            raise Wrong(f"there is no reference {path}")
        directory = Directory.list(path) if path.is_dir() else Directory(path.parent, [path], [], [])
        text = sorted({*text, *directory.keys})
        stats = ((file, file.stat()) for file in directory.files)
        identity = (path, *text), tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in stats)
        if identity not in self.kept:
            self.kept[identity] = Rows.of(self.tables(path, directory), text)
        self.kept.move_to_end(identity)
        while len(self.kept) > KEPT_REFERENCES:
            self.kept.popitem(last=False)
        return self.kept[identity], text

    @staticmethod
    def tables(path, directory):
        if path.is_dir() and directory.files:
            return by_pyarrow_dataset(directory, directory.keys)
        return ((file.name, pa.dataset.dataset(file, format="parquet").to_table()) for file in directory.files)


def check(
    references, out, reference, sub=False, allow_missing=False, partitioned=False, readers=None, table=None
):
    """Checks one directory; see the head of this file."""
    known = TABLES[table] if table else READERS
    unknown = sorted(set(readers or []) - set(known))
    if unknown:
        raise Wrong(f"unknown readers {', '.join(unknown)}: there are {', '.join(known)}")
    directory = Directory(Path(out), [Path(out)], [], []) if table else Directory.list(out)
    keys = directory.keys if partitioned else []
    wanted, text = references.get(reference, keys)
    told = [f"not a visible Parquet file: {path.relative_to(directory.root)}" for path in sorted(directory.strays)]
    rows = {}
    for name in readers or known:
        try:
            found = Rows.of(known[name](directory, keys) if directory.files else [], text)
        except Exception as error:  # whatever a reader throws, the output cannot be read by it
            told.append(f"{name} cannot read it: {type(error).__name__}: {error}")
            continue
        rows[name] = found.total()
        wrong = "" if allow_missing and not directory.files else difference(found, wanted, sub)
        if wrong:
            told.append(f"{name}: {wrong}")
    return {"ok": not told, "why": "\n".join(told), "rows": rows}


def listed(iceberg):
    """What the table in a catalog consists of; nothing when there is none."""
    try:
        table = iceberg_table(Directory(Path(iceberg), [], [], []))
    except (NoSuchTableError, NoSuchNamespaceError):
        return {"files": [], "snapshots": 0}
    files = [task.file for task in table.scan().plan_files()]
    live = [(file.file_path.removeprefix("file://"), file.file_size_in_bytes) for file in files]
    return {"files": live, "snapshots": len(table.metadata.snapshots)}


def serve(references):
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = listed(**request) if "iceberg" in request else check(references, **request)
        except Exception as error:  # one bad request must not end the others'
            answer = {"ok": False, "why": f"bad request: {type(error).__name__}: {error}", "rows": {}}
        print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser(description="Compares an output directory with a reference, by several readers.")
    flag = partial(parser.add_argument, action="store_true")
    flag("--serve", help="answer requests on stdin")
    parser.add_argument("--out", metavar="DIR")
    parser.add_argument("--reference", metavar="FILE_OR_DIR")
    flag("--sub", help="the output may be a part of the reference")
    flag("--allow-missing", help="the output may be missing or empty as a whole")
    flag("--partitioned", help="key=value folders are columns")
    parser.add_argument("--table", choices=sorted(TABLES), help="DIR is a table of this format")
    parser.add_argument("--readers", type=lambda names: names.split(","), help=f"of {','.join(READERS)}; default: all")
    options = vars(parser.parse_args())
    if options.pop("serve"):
        serve(References())
        return
    if options["out"] is None or options["reference"] is None:
        parser.error("--out and --reference are required")
    try:
        answer = check(References(), **options)
    except Wrong as wrong:
        parser.error(str(wrong))
    rows = ", ".join(f"{name} {count}" for name, count in answer["rows"].items())
    print("\n".join(filter(None, [answer["why"], f"{'ok' if answer['ok'] else 'not ok'}; rows by reader: {rows}"])))
    sys.exit(0 if answer["ok"] else 1)


if __name__ == "__main__":
    main()
