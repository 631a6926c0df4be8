#!/usr/bin/env python3
"""The probe of `stoker bench train` beside fio on one disk, in turns, each on files that were just written.

    python3 benchmarks/probe-beside-fio.py STOKER FOLDER PAIRS MIB > raw.json

Each turn writes MIB of new files below FOLDER and measures them once: equal age, no byte twice, because the host of a virtual
disk may keep what was written or read. `fio` reads with its files invalidated, `cold` is the probe with caches emptied, `keep` the
probe with all files in the page cache (--set caches=keep). The turns of a pair change places. Needs fio, and root for `cold`.
"""
import json, os, shutil, statistics, subprocess, sys

STOKER, FOLDER, PAIRS, MIB = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
STREAMS, FILES = 4, 16
SET = os.path.join(FOLDER, "beside-fio")
WORKLOAD = """
name = "beside-fio"
source = "benchmarks/probe-beside-fio.py"
[files]
format = "raw"
count = %d
samples_per_file = 1
sample_bytes = %d
[read]
batch = 1
threads = 4
prefetch_batches = 4
order = "shuffled"
epochs = 1
pass_au_percent = 90
""" % (FILES, MIB * (1 << 20) // FILES)


def written():
    shutil.rmtree(SET, ignore_errors=True)
    os.makedirs(SET)
    block = os.urandom(1 << 20)
    for number in range(FILES):
        with open(os.path.join(SET, f"{number:02}"), "wb") as file:
            for part in range(MIB // FILES):
                file.write(number.to_bytes(4, "little") + part.to_bytes(4, "little") + block[8:])
            os.fsync(file.fileno())


def fio(pattern, block, jobs, names, *more):
    words = ["fio", f"--rw={pattern}", f"--bs={block}", "--ioengine=psync", "--thread", "--invalidate=1", "--direct=0",
             "--group_reporting", "--output-format=json", "--readonly", *more]
    each = len(names) // jobs
    for job in range(jobs):
        own = ":".join(os.path.join(SET, name) for name in names[job * each:(job + 1) * each])
        words += [f"--name=j{job}", f"--filename={own}"]
        if pattern == "read":
            words += ["--file_service_type=sequential"]
    done = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return done["jobs"][0]["read"]


def by_fio():
    written()
    names = sorted(os.listdir(SET))
    last = ["--time_based", "--runtime=0.5s"]
    one = fio("randread", "4k", 1, names[12:13], *last)
    many = fio("randread", "4k", STREAMS, names[8:12], "--time_based", "--runtime=2s")
    long = fio("read", "1M", STREAMS, names[:8])
    return {"bytes_per_second": long["bw_bytes"], "requests_per_second": many["iops"],
            "latency_seconds": one["clat_ns"]["percentile"]["50.000000"] / 1e9}


def by_probe(caches):
    written()
    toml, saved = os.path.join(FOLDER, "beside-fio.toml"), os.path.join(FOLDER, "beside-fio.json")
    with open(toml, "w") as file:
        file.write(WORKLOAD)
    words = [STOKER, "bench", "train", "--workload", toml, "--accelerators", "1", "--target", SET, "--save", saved,
             "--set", f"step=1ms,steps=2,caches={caches}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode in (0, 3, 5), done.stderr
    with open(saved) as file:
        probe = json.load(file)["sections"]["probe"]
    assert probe["streams"] == STREAMS, probe
    figures = {name: probe["supply"][name] for name in ("bytes_per_second", "requests_per_second", "latency_seconds")}
    return figures | {"given_percent": probe.get("given_percent"), "no_bound": probe.get("no_bound")}


raw = []
turns = [("fio", by_fio), ("cold", lambda: by_probe("first")), ("keep", lambda: by_probe("keep"))]
for pair in range(PAIRS):
    found = {}
    for place in range(3):
        name, work = turns[(pair + place) % 3]
        found[name] = work()
    raw.append({"pair": pair + 1, "first": turns[pair % 3][0], **found})
    print(json.dumps(raw[-1]), file=sys.stderr, flush=True)
shutil.rmtree(SET)
for left in ("beside-fio.toml", "beside-fio.json"):
    os.remove(os.path.join(FOLDER, left))
for figure in ("bytes_per_second", "requests_per_second", "latency_seconds"):
    for one, other in (("cold", "fio"), ("keep", "fio"), ("keep", "cold")):
        ratios = sorted(pair[one][figure] / pair[other][figure] for pair in raw)
        medians = [statistics.median(pair[name][figure] for pair in raw) for name in (one, other)]
        print(f"{figure}: {one} {medians[0]:.4g}, {other} {medians[1]:.4g}, of medians {medians[0] / medians[1]:.3f}, "
              f"of pairs {statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", file=sys.stderr)
print(json.dumps(raw, indent=1))
