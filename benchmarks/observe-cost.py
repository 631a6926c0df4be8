#!/usr/bin/env python3
"""What `stoker observe` costs a program that only reads: the same passes alone and observed, in turn.

    python3 benchmarks/observe-cost.py STOKER SCRATCH ROUNDS RAW.json

As root. SCRATCH: an empty folder on a disk (165 MB). Each round runs each set alone and observed, in an order by chance, one Python
process of PASSES passes each, files in the page cache; a file is opened, read to its end and closed. Best pass of a process; medians
over rounds.
"""
import json, os, random, statistics, subprocess, sys, time

PASSES = 15
SETS = {"1,000 files of 4 KiB": (1000, 4 << 10), "1,000 files of 100 kB": (1000, 100_000), "one file of 64 MiB": (1, 64 << 20)}


def passes(folder):
    """The best pass over a folder, in seconds."""
    names = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    best = float("inf")
    for _ in range(PASSES):
        began = time.perf_counter()
        for name in names:
            handle = os.open(name, os.O_RDONLY)
            while os.read(handle, 1 << 20):
                pass
            os.close(handle)
        best = min(best, time.perf_counter() - began)
    print(best)


def main(stoker, scratch, rounds, raw):
    for name, (count, size) in SETS.items():
        os.makedirs(os.path.join(scratch, name), exist_ok=True)
        for number in range(count):
            with open(os.path.join(scratch, name, f"{number:05}"), "wb") as file:
                file.write(os.urandom(size))
    runs = []
    for number in range(rounds):
        todo = [(name, way) for name in SETS for way in ("alone", "observed")]
        random.Random(number).shuffle(todo)
        for name, way in todo:
            folder = os.path.join(scratch, name)
            command = [sys.executable, os.path.abspath(__file__), "--passes", folder]
            before = [] if way == "alone" else [stoker, "observe", folder, "--"]
            done = subprocess.run([*before, *command], capture_output=True, text=True, check=True)
            seconds = float(done.stdout.split()[0])
            runs.append({"round": number, "set": name, "way": way, "seconds": seconds, "load": os.getloadavg()[0]})
            print(runs[-1], flush=True)
    with open(raw, "w") as file:
        json.dump(runs, file, indent=1)
    for name, (count, size) in SETS.items():
        alone, seen = (
            statistics.median(run["seconds"] for run in runs if (run["set"], run["way"]) == (name, way))
            for way in ("alone", "observed")
        )
        each = [f"{1e6 * seconds / count:.1f} us a file" if count > 1 else f"{size / seconds / 2**30:.2f} GiB/s" for seconds in (alone, seen)]
        print(f"| {name} | {each[0]} | {each[1]} | {seen / alone:.1f} |")


if __name__ == "__main__":
    if sys.argv[1] == "--passes":
        passes(sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
