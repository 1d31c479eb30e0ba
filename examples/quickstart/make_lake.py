"""Writes the lake of this example: twelve small Parquet files in hive folders, one a day.

    python3 examples/quickstart/make_lake.py

Needs pyarrow. The rows depend on nothing but the seed, so that a second run writes the same rows; the bytes can differ
between versions of pyarrow. The result is checked in: run this only to change the lake.
"""

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LAKE = Path(__file__).parent / "lake"
DAYS = ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]
FILES_A_DAY = 3
# Lakes hold names that nobody would choose; a path is a raw string and must survive as one.
ODD_NAMES = {7: "part 07 (final) [v2] 100%.parquet"}

SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("score", pa.float64()),
    ]
)

WHO = [
    "The night ferry", "A retired teacher", "The survey team", "Our neighbour", "The bakery on Mill Lane",
    "A young geologist", "The town library", "The relief pilot", "An old lighthouse keeper", "The choir",
    "The harbour office", "A visiting engineer", "The last train", "The weather station", "My sister",
]
DID = [
    "reported", "found", "lost track of", "wrote about", "photographed", "waited for", "measured", "repaired",
    "argued over", "forgot", "counted", "described", "asked for", "delivered", "returned",
]
WHAT = [
    "the flooded road", "three wooden crates", "a map of the coast", "the missing ledger", "an unusual fossil",
    "the broken clock", "a box of letters", "the first snow", "two empty boats", "the new timetable",
    "a jar of honey", "the spare key", "an early draft", "the river level", "a field of barley",
]
WHEN = [
    "before sunrise", "on a quiet Sunday", "during the storm", "after the meeting", "for the second time",
    "without any help", "near the old bridge", "in less than an hour", "despite the fog", "just before closing",
    "at the end of winter", "while it rained", "as agreed", "a week too late", "under the café’s awning",
]


def rows(rng, first, count):
    """`count` rows, numbered from `first`, as one table: one row group."""
    return pa.table(
        {
            "doc_id": [f"doc-{first + i:06d}" for i in range(count)],
            "text": [" ".join(rng.choice(words) for words in (WHO, DID, WHAT, WHEN)) + "." for _ in range(count)],
            "n": [rng.randrange(1000) for _ in range(count)],
            "score": [None if rng.random() < 0.1 else round(rng.random(), 4) for _ in range(count)],
        },
        schema=SCHEMA,
    )


def main():
    rng = random.Random(20260101)
    shutil.rmtree(LAKE, ignore_errors=True)
    first = 0
    for number in range(len(DAYS) * FILES_A_DAY):
        folder = LAKE / f"day={DAYS[number // FILES_A_DAY]}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ODD_NAMES.get(number, f"part-{number:05d}.parquet")
        with pq.ParquetWriter(path, SCHEMA, compression="zstd", compression_level=9) as writer:
            for _ in range(rng.randint(2, 5)):
                group = rows(rng, first, rng.randint(20, 200))
                writer.write_table(group, row_group_size=len(group))
                first += len(group)
    (LAKE / "_SUCCESS").touch()
    print(f"{first} rows under {LAKE}")


if __name__ == "__main__":
    main()
