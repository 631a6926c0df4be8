"""Where a set may be cached, by how much of it: nowhere, by the kernel, on each node for itself, on all for all, on nodes of their own.

A quarter of the bytes of the experiment of `au`, at the same rates. Curves, for a page; not a part of the table.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import draw
from bed import Bed, wait_for
from job import Job

FILES, BYTES, STORE, DEMAND, NODES, EPOCHS = 300, 1_000_000, 64e6, 132.4e6, 4, 5
RATIOS = [0, 0.25, 0.5, 0.75, 1]
KEEPERS = 2
GROUPS = Path("/sys/fs/cgroup/memory")

# What a reader in a group of its own does: its pages count against the group.
READ = """
import sys, zlib
for line in sys.stdin:
    crc = 0
    with open(line[:-1], "rb", buffering=0) as file:
        while piece := file.read(1 << 18):
            crc = zlib.crc32(piece, crc)
    print(crc, flush=True)
"""


class Group:
    """So much memory for the readers of a node and the pages that they read."""

    def __init__(self, name, amount):
        self.path, self.readers = GROUPS / name, []
        self.path.mkdir()
        (self.path / "memory.limit_in_bytes").write_text(str(amount))

    def reader(self):
        one = subprocess.Popen([sys.executable, "-c", READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # What it needs for itself it has by then.
        one.stdin.write("/dev/null\n")
        one.stdin.flush()
        one.stdout.readline()
        (self.path / "cgroup.procs").write_text(str(one.pid))
        self.readers.append(one)
        return one

    def close(self):
        for one in self.readers:
            one.kill()
            one.wait()
        wait_for(self.gone, "the control group is gone")

    def gone(self):
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True


class Paged(Job):
    """Reads by processes whose pages stay in memory, as far as their groups allow."""

    def __init__(self, groups, *words):
        super().__init__(*words)
        self.groups, self.own, self.starting = groups, threading.local(), threading.Lock()

    def compare(self, node, number):
        if not hasattr(self.own, "reader"):
            with self.starting:
                self.own.reader = self.groups[node].reader()
        self.own.reader.stdin.write(f"{self.bed.at(node) / f'{number:05}'}\n")
        self.own.reader.stdin.flush()
        return int(self.own.reader.stdout.readline()) == self.bed.sums[number]


def none(bed, ratio):
    for number in range(NODES):
        bed.mount_one(number, 0, memory="64MiB", alone=True)


def kernel(bed, ratio):
    for number in range(NODES):
        bed.mount_one(number, 0, memory="64MiB", more=["--immutable"], alone=True)


def private(bed, ratio):
    for number in range(NODES):
        bed.mount_one(number, int(ratio * bed.total / NODES), memory="64MiB", alone=True)


def mixed(bed, ratio):
    bed.mount(NODES, int(ratio * bed.total / NODES), memory="64MiB")


def dedicated(bed, ratio):
    """Nodes that are read from keep nothing, two others all."""
    bed.write_hosts(NODES + KEEPERS, NODES * [0] + KEEPERS * [1])
    for number in range(NODES):
        bed.mount_one(number, 0, memory="64MiB")
    for number in range(NODES, NODES + KEEPERS):
        bed.serve_one(number, max(1_000_000, int(ratio * bed.total / KEEPERS)), memory="64MiB")
    wait_for(lambda: bed.all_answer(NODES + KEEPERS), "all members answer")


def bound(mode, ratio):
    """AU, if all that is kept is read again; a cache of one node helps with what is read there."""
    hits = {"none": 0, "kernel": ratio / NODES, "private": ratio / NODES}.get(mode.__name__, ratio)
    return min(1, STORE / ((1 - hits) * DEMAND)) if hits < 1 else 1


def point(mode, ratio):
    """What a job gets of it once all is as it stays."""
    with Bed(FILES, BYTES, bandwidth="64MB/s") as bed:
        mode(bed, ratio)
        words = [bed, list(range(NODES)), NODES * BYTES / DEMAND, EPOCHS]
        groups = []
        try:
            if mode is kernel:
                # Beside the pages there are buffers of four readers, and what the kernel itself counts.
                groups += [Group(f"{bed.scratch.name}-{node}", int(ratio * bed.total / NODES) + (6 << 20)) for node in range(NODES)]
            job = Paged(groups, *words) if mode is kernel else Job(*words)
            keepers = range(NODES, NODES + KEEPERS) if mode is dedicated else range(NODES)
            seen = []
            see = lambda: seen.append((bed.sent(), sum(bed.cpu_seconds(node) for node in keepers)))
            ends = job.run(lambda epoch: see())
            see()
            # Readers of a job that is over end what they have begun.
            time.sleep(0.5)
        finally:
            for group in groups:
                group.close()
        if job.errors + job.wrong:
            raise ValueError(f"{job.errors} errors and {job.wrong} wrong files: {mode.__name__} at {ratio}")
        seconds, epochs = ends[EPOCHS] - ends[1], EPOCHS - 1
        sent, cpu = (after - before for before, after in zip(seen[1], seen[EPOCHS]))
        figures = {"au": 100 * job.au(ends, 1, EPOCHS - 1), "bound": 100 * bound(mode, ratio), "hits": 100 * (1 - sent / epochs / bed.total)}
        figures |= {"store_mb_per_second": sent / 1e6 / seconds, "cache_cpu_seconds_per_gb": cpu / (epochs * bed.total / 1e9)}
        return {"mode": mode.__name__, "ratio": ratio} | {name: round(value, 2) for name, value in figures.items()}


def run(rows):
    points = []
    for mode in [none, kernel, private, mixed, dedicated]:
        # Without a cache there is nothing that a ratio could be of.
        for ratio in [0] if mode is none else RATIOS:
            one = point(mode, ratio)
            points.append(one)
            holds = one["au"] <= 1.02 * one["bound"]
            note = ", ".join(f"{name} {value}" for name, value in one.items() if name not in ("mode", "ratio", "au", "bound"))
            rows.add(f"AU, cache {mode.__name__}, ratio {ratio}", one["bound"], one["au"], "<= 1.02 of the bound", holds, note)
            if out := os.environ.get("OUT"):
                Path(out).mkdir(parents=True, exist_ok=True)
                (Path(out) / "modes.json").write_text(json.dumps(points, indent=1) + "\n")
                (Path(out) / "modes.svg").write_text(drawn(points))


def drawn(points):
    titles = {"au": "AU, %", "hits": "hits, % of bytes", "store_mb_per_second": "store, MB/s", "cache_cpu_seconds_per_gb": "CPU s of cache nodes per GB"}
    panels = {}
    for name, title in titles.items():
        lines = panels[title] = {}
        for one in points:
            lines.setdefault(one["mode"], []).append((one["ratio"], one[name]))
        # It is the same at any ratio.
        lines["none"].append((1, lines["none"][0][1]))
    return draw.curves("cache ratio, of the set", panels)
