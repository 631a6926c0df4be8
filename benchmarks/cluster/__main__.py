"""All rows, or those of the parts that are named, into a folder of runs."""

import os
import sys
import time
import traceback
from pathlib import Path

import au
import chaos
import denied
import failure
import formats
import hits64
import links
import modes
import refresh
import s3fs
import small
import store
import sweep
import throttle
import turns
import wire
from rows import Rows

PARTS = {
    "au": au.run,
    "failure": failure.run,
    "store": store.run,
    "small": small.run,
    "links": links.run,
    "denied": denied.run,
    "refresh": refresh.run,
    "formats": formats.run,
    "hits64": hits64.run,
    "sweep": sweep.run,
    "s3fs": s3fs.run,
    "throttle": throttle.run,
    "turns": turns.run,
    "chaos": chaos.run,
    "wire": wire.run,
}

# Curves that take minutes and have no goal: only where they are named.
CURVES = {"modes": modes.run}

if __name__ == "__main__":
    named, parts = sys.argv[1:] or list(PARTS), PARTS | CURVES
    unknown = [name for name in named if name not in parts]
    if unknown:
        sys.exit(f"there is no part {unknown[0]}: {', '.join(parts)}")
    rows, began = Rows(), time.monotonic()
    for name in named:
        part_began = time.monotonic()
        try:
            parts[name](rows)
        except Exception as error:
            # The others are measured all the same.
            traceback.print_exc()
            rows.add(f"{name} ran to its end", 1, 0, "= 1", False, str(error))
        print(f"       {name}: {time.monotonic() - part_began:.0f} s", flush=True)
        if out := os.environ.get("OUT"):
            Path(out).mkdir(parents=True, exist_ok=True)
            rows.write(Path(out) / "rows.json")
    short = [row for row in rows.all if not row["holds"]]
    print(f"{len(rows.all) - len(short)} of {len(rows.all)} rows hold, in {(time.monotonic() - began) / 60:.1f} minutes")
    sys.exit(1 if short else 0)
