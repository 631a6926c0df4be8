"""All rows, or those of the parts that are named (`store`, or `store.join` alone), into a folder of runs."""

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
import setup
import small
import store
import sweep
import throttle
import turns
import wire
from bed import SEEN
from rows import Rows

# A part is all of its module, or what that names one by one.
MODULES = [au, failure, store, small, links, denied, refresh, formats, hits64, sweep, s3fs, throttle, turns, chaos, wire]
# Curves that take minutes and have no goal: only where they are named.
CURVES = [modes]


def parts_of(modules):
    parts = {}
    for module in modules:
        each = getattr(module, "PARTS", {"": getattr(module, "run", None)})
        parts |= {f"{module.__name__}.{name}".rstrip("."): measure for name, measure in each.items()}
    return parts


def chosen(words):
    """The parts that are named, in the order of the words, each once."""
    if not words:
        return parts_of(MODULES)
    parts, found = parts_of(MODULES + CURVES), {}
    for word in words:
        meant = {name: measure for name, measure in parts.items() if name == word or name.startswith(f"{word}.")}
        if not meant:
            sys.exit(f"there is no part {word}: {', '.join(parts)}")
        found |= meant
    return found


def run(rows, name, measure):
    """Its seconds."""
    rows.part, began = name, time.monotonic()
    for said in SEEN.values():
        said.clear()
    try:
        measure(rows)
    except Exception as error:
        # The others are measured all the same. What it says may name paths of this machine.
        traceback.print_exc()
        rows.add(f"{name} ran to its end", 1, 0, "= 1", False, type(error).__name__)
    seconds = time.monotonic() - began
    print(f"       {name}: {seconds:.0f} s", flush=True)
    return seconds


if __name__ == "__main__":
    rows, began, built = Rows(), time.monotonic(), setup.program()
    for name, measure in chosen(sys.argv[1:]).items():
        seconds = run(rows, name, measure)
        if out := os.environ.get("OUT"):
            Path(out).mkdir(parents=True, exist_ok=True)
            rows.write(Path(out) / "rows.json")
            setup.write(Path(out) / "setup.json", name, built, seconds)
    short = [row for row in rows.all if not row["holds"]]
    told = [row for row in rows.all if row["goal"].startswith("none")]
    print(f"{len(rows.all) - len(short) - len(told)} of {len(rows.all) - len(told)} rows hold, in {(time.monotonic() - began) / 60:.1f} minutes")
    sys.exit(1 if short else 0)
