"""All rows, or those of the parts that are named, into a folder of runs."""

import os
import sys
import time
from pathlib import Path

import au
import chaos
import failure
import links
import s3fs
import small
import store
import throttle
import turns
from rows import Rows

PARTS = {
    "au": au.run,
    "failure": failure.run,
    "store": store.run,
    "small": small.run,
    "links": links.run,
    "s3fs": s3fs.run,
    "throttle": throttle.run,
    "turns": turns.run,
    "chaos": chaos.run,
}

if __name__ == "__main__":
    named = sys.argv[1:] or list(PARTS)
    unknown = [name for name in named if name not in PARTS]
    if unknown:
        sys.exit(f"there is no part {unknown[0]}: {', '.join(PARTS)}")
    rows, began = Rows(), time.monotonic()
    for name in named:
        try:
            PARTS[name](rows)
        finally:
            if out := os.environ.get("OUT"):
                Path(out).mkdir(parents=True, exist_ok=True)
                rows.write(Path(out) / "rows.json")
    short = [row for row in rows.all if not row["holds"]]
    print(f"{len(rows.all) - len(short)} of {len(rows.all)} rows hold, in {(time.monotonic() - began) / 60:.1f} minutes")
    sys.exit(1 if short else 0)
