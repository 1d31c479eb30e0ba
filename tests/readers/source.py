"""Makes and changes Delta and Iceberg tables as their own tools do, and checks what was made of their rows.

    source.py delta|iceberg TABLE VERB [ARGUMENT]...

    create FIRST LAST           a table with the rows FIRST to LAST - 1, partitioned by `part`
    plain FIRST LAST            the same without partitions
    append FIRST LAST           more rows
    compact                     the files of each partition are written anew as one, with the same rows
    delete FIRST LAST           rows are deleted, by writing their files anew
    names NAME...               an Iceberg table with `id` and columns of these names, and one row
    clean                       the state of a Delta table is in a checkpoint, and its entries are gone
    vacuum                      files that have left the table are deleted from the storage
    check OUT FIRST-LAST...     the Parquet files in OUT hold exactly the rows of these ranges, each range once

An Iceberg table is `lake.docs` in the SQL catalog `catalog.db` beside it.
"""

import os
import sys
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset

PARTS = ["a b", "R&D", "x/y", "100%", "é", None]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("text", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("more", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)


def row(i):
    if i % 7 == 3:
        return {"id": i, "part": PARTS[i % len(PARTS)]} | dict.fromkeys(SCHEMA.names[2:])
    return {
        "id": i,
        "part": PARTS[i % len(PARTS)],
        "text": "" if i % 5 == 0 else f"text {i} 'é\n",
        "price": Decimal(i * 7 - 500) / 100,
        "at": datetime(2024, 2, 29, 23, 59, 59, 999_999, timezone.utc) + timedelta(minutes=i),
        "day": date(1969, 12, 30) + timedelta(days=i),
        "tags": [] if i % 3 == 0 else [f"t{i}", None, ""],
        "more": {"a": i, "b": None if i % 2 else "b"},
    }


def rows(first, last):
    return pa.Table.from_pylist([row(i) for i in range(int(first), int(last))], SCHEMA)


class Delta:
    def __init__(self, table):
        self.path = table

    def open(self):
        import deltalake

        return deltalake.DeltaTable(self.path)

    def create(self, first, last, partition_by=("part",)):
        import deltalake

        deltalake.write_deltalake(self.path, rows(first, last), partition_by=list(partition_by))

    def append(self, first, last):
        import deltalake

        deltalake.write_deltalake(self.path, rows(first, last), mode="append")

    def compact(self):
        print(self.open().optimize.compact())

    def delete(self, first, last):
        print(self.open().delete(f"id >= {first} and id < {last}"))

    def clean(self):
        table = self.open()
        table.create_checkpoint()
        log = os.path.join(self.path, "_delta_log")
        for name in os.listdir(log):
            if name.endswith(".json") and int(name[:20]) < table.version():
                os.remove(os.path.join(log, name))

    def vacuum(self):
        print(self.open().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False))


class Iceberg:
    def __init__(self, table):
        from pyiceberg.catalog.sql import SqlCatalog

        self.path = table
        self.catalog = SqlCatalog("default", uri=f"sqlite:///{os.path.dirname(table)}/catalog.db")

    def open(self):
        return self.catalog.load_table("lake.docs")

    def create(self, first, last, partition_by=("part",)):
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        self.catalog.create_namespace_if_not_exists("lake")
        table = self.catalog.create_table("lake.docs", SCHEMA, location=f"file://{self.path}")
        if partition_by:
            # With the ids that the table has given its columns.
            self.catalog.drop_table("lake.docs")
            fields = [
                PartitionField(table.schema().find_field(name).field_id, 1000 + i, IdentityTransform(), name)
                for i, name in enumerate(partition_by)
            ]
            self.catalog.create_table(
                "lake.docs", table.schema(), location=f"file://{self.path}", partition_spec=PartitionSpec(*fields)
            )
        self.append(first, last)

    def names(self, *names):
        one = pa.table({"id": [1]} | {name: [f"of {name}"] for name in names})
        self.catalog.create_namespace_if_not_exists("lake")
        self.catalog.create_table("lake.docs", one.schema, location=f"file://{self.path}").append(one)

    def append(self, first, last):
        self.open().append(rows(first, last))

    def compact(self):
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import _dataframe_to_data_files
        from pyiceberg.table.snapshots import Operation

        table = self.open()
        everything = table.scan().to_arrow()
        old = [task.file for task in table.scan(row_filter=AlwaysTrue()).plan_files()]
        with table.transaction() as transaction:
            # pyiceberg cannot compact by itself: its overwriting, said to be of the same rows.
            replace = transaction.update_snapshot().overwrite()
            replace._operation = Operation.REPLACE
            summary = type(replace)._summary
            replace._summary = lambda *given: _as_replace(replace, summary, given)
            with replace as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                for file in _dataframe_to_data_files(table.metadata, everything, table.io):
                    snapshot.append_data_file(file)

    def delete(self, first, last):
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

        self.open().delete(And(GreaterThanOrEqual("id", int(first)), LessThan("id", int(last))))

    def vacuum(self):
        table = self.open()
        now = {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}
        for folder, _, names in os.walk(os.path.join(self.path, "data")):
            for path in (os.path.join(folder, name) for name in names):
                if path.endswith(".parquet") and path not in now:
                    os.remove(path)


def _as_replace(replace, summary, given):
    """The summary of an overwriting: pyiceberg makes none of a replacing."""
    from pyiceberg.table.snapshots import Operation, Summary

    replace._operation = Operation.OVERWRITE
    said = summary(replace, *given)
    replace._operation = Operation.REPLACE
    return Summary(Operation.REPLACE, **said.additional_properties)


def plain(value):
    """The same, however it is spelled."""
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    return value.astimezone(timezone.utc).isoformat() if isinstance(value, datetime) else value


def check(out, *ranges):
    got = pa.dataset.dataset(out, format="parquet").to_table().to_pylist()
    wanted = [row(i) for first, last in (given.split("-") for given in ranges) for i in range(int(first), int(last))]
    key = lambda one: repr([plain(one[name]) for name in SCHEMA.names])
    got, wanted = Counter(map(key, got)), Counter(map(key, wanted))
    if got != wanted:
        sys.exit(f"missing: {list((wanted - got).items())[:3]}\nbeyond: {list((got - wanted).items())[:3]}")


if __name__ == "__main__":
    kind, path, verb, *arguments = sys.argv[1:]
    if verb == "check":
        check(*arguments)
    else:
        table = {"delta": Delta, "iceberg": Iceberg}[kind](path)
        if verb == "plain":
            table.create(*arguments, partition_by=())
        else:
            getattr(table, verb)(*arguments)
    # A thread that is still running at the end of the interpreter would end it as a failure.
    sys.stdout.flush()
    os._exit(0)
