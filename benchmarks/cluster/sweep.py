"""Sizes by threads, read on the pool by four nodes on links of 50 MB/s: files that came to the store from outside, no page of them in memory."""

import json
import os
import random
import subprocess
import threading
import time
from pathlib import Path

import draw
from bed import Bed, content, sum_of
from links import bare, crossing
from net import Net

LINK, NODES, BLOCK = 50e6, 4, 1 << 20
KIB, MIB = 1 << 10, 1 << 20
# How many files of each size: enough that each member owns some, and as many as a node tells one by one.
FILES = {16 * KIB: 1_000, 64 * KIB: 1_000, 256 * KIB: 512, MIB: 192, 4 * MIB: 48, 16 * MIB: 16, 64 * MIB: 8}
THREADS = [1, 4, 16]


class Cell:
    """All nodes read all files of one size once, each in an order of its own, by so many threads."""

    def __init__(self, bed, size, sums, threads):
        self.bed, self.size, self.sums, self.seconds, self.wrong = bed, size, sums, [], 0
        self.lock = threading.Lock()
        left = [random.Random(f"{node} {size} {threads}").sample(range(FILES[size]), FILES[size]) for node in range(NODES)]
        workers = [threading.Thread(target=self.work, args=(node, left[node])) for node in range(NODES) for _ in range(threads)]
        # What has to cross is known before anything is read: all read all, and each file lies on some disk.
        holders = [bed.kept(node, str(size)) for node in range(NODES)]
        into, out = crossing([(node, f"{number:05}", size) for node in range(NODES) for number in left[node]], holders, NODES)
        self.had, self.has_to, began = bed.figure("had_bytes"), sum(into), time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        amount, took = NODES * size * FILES[size], time.monotonic() - began
        self.rate, self.files_per_second = amount / took, len(self.seconds) / took
        # Whichever link carries most is the bound of all.
        self.busiest, self.had = max(into + out) / amount, bed.figure("had_bytes") - self.had

    def work(self, node, left):
        while True:
            with self.lock:
                if not left:
                    return
                number = left.pop()
            began = time.monotonic()
            is_right = sum_of(self.bed.at(node) / f"{self.size}/{number:05}") == self.sums[number]
            with self.lock:
                self.seconds.append(time.monotonic() - began)
                self.wrong += not is_right


def drop(bed):
    """All that the kernel has in memory of the caches, once it is on the disk."""
    subprocess.run(["sync", "-f", bed.scratch], check=True)
    bed.drop()


def disk(bed):
    """Bytes a second of the disk below all caches, read by four threads."""
    drop(bed)
    paths = [path for path in bed.scratch.glob("cache*/**/*") if path.is_file() and path.stat().st_size >= 16 * MIB]
    amount, began = [0], time.monotonic()

    def work(mine):
        for path in mine:
            with open(path, "rb", buffering=0) as file:
                while time.monotonic() - began < 2 and (piece := file.read(BLOCK)):
                    amount[0] += len(piece)

    threads = [threading.Thread(target=work, args=(paths[first::4],)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return amount[0] / (time.monotonic() - began)


def regimes(cells, threads):
    """Time of a file as latency + size / bandwidth: least squares of relative errors. The knee is the size of which half is latency."""
    points = [(size, sum(cell.seconds) / len(cell.seconds)) for (size, count), cell in cells.items() if count == threads]
    weights = [1 / seconds**2 for _, seconds in points]
    total = sum(weights)
    sizes = sum(weight * size for weight, (size, _) in zip(weights, points)) / total
    times = sum(weight * seconds for weight, (_, seconds) in zip(weights, points)) / total
    slope = sum(weight * (size - sizes) * (seconds - times) for weight, (size, seconds) in zip(weights, points))
    slope /= sum(weight * (size - sizes) ** 2 for weight, (size, _) in zip(weights, points))
    latency = times - slope * sizes
    return latency, latency / slope


def run(rows):
    net = Net(NODES, LINK)
    link = bare(net)
    cells = {}
    with Bed(0, 0, net=net) as bed:
        sums = {}
        for size, count in FILES.items():
            (bed.scratch / "data" / str(size)).mkdir()
            sums[size] = [bed.put(f"{size}/{number:05}", content(number, size)) for number in range(count)]
        total = sum(size * count for size, count in FILES.items())
        # Where the last of the large ones finds room, too.
        bed.mount(NODES, int(1.02 * total / NODES) + max(FILES), memory="128MiB")
        loads = bed.load(0)
        below = disk(bed)
        # All other sizes lie between two readings of one: no memory has it still.
        for threads in THREADS:
            for size in FILES:
                drop(bed)
                cells[size, threads] = Cell(bed, size, sums[size], threads)
        judge(rows, cells, link, below)
        sent = bed.sent() / total
    rows.at_most("sweep: store bytes from the load to the last cell, of the set", 1, sent, 1.005, f"{loads} loads until all was kept")


def judge(rows, cells, link, below):
    rows.at_most("sweep: files that are read wrong", 0, sum(cell.wrong for cell in cells.values()), 0, f"{sum(len(cell.seconds) for cell in cells.values())} files")
    for cell in cells.values():
        # What lies on the node itself takes no link.
        cell.bound = min(link / cell.busiest, below) if cell.busiest else below
    crossed = sum(cell.had for cell in cells.values()) / sum(cell.has_to for cell in cells.values())
    rows.within("sweep: bytes that nodes had from each other, of what lay elsewhere", 1, crossed, 0.95, 1.01)
    for size in [size for size in FILES if size >= 4 * MIB]:
        # One thread a node leaves links idle while two nodes read from one.
        threads = max(THREADS, key=lambda threads: cells[size, threads].rate / cells[size, threads].bound)
        cell = cells[size, threads]
        even = NODES * link * NODES / (NODES - 1)
        others = ", ".join(f"{cells[size, count].rate / cells[size, count].bound:.2f} of it with {count}" for count in THREADS)
        note = f"{threads} threads; {others}; links evenly used would give {even / 1e6:.0f}, the disk {below / 1e6:.0f}"
        rows.at_least(f"MB/s of 4 nodes that read files of {size // MIB} MiB", cell.bound / 1e6, cell.rate / 1e6, 0.9, note)
    # Where links are full, a file takes as long as they let it; one thread shows what it takes by itself.
    latency, knee = regimes(cells, 1)
    note = f"a file takes {1000 * latency:.1f} ms before its bytes flow"
    rows.add("KiB of a file that is half latency and half bytes, one thread a node", max(FILES) // KIB, knee / KIB, "two regimes: within the sizes", min(FILES) < knee < max(FILES), note)
    if out := os.environ.get("OUT"):
        Path(out).mkdir(parents=True, exist_ok=True)
        told = [{"size": size, "threads": threads, "bytes_per_second": cell.rate, "bound": cell.bound, "files_per_second": cell.files_per_second} for (size, threads), cell in cells.items()]
        (Path(out) / "sweep.json").write_text(json.dumps(told, indent=1) + "\n")
        names = [f"{size // KIB} KiB" if size < MIB else f"{size // MIB} MiB" for size in FILES]
        shares = [[cells[size, threads].rate / cells[size, threads].bound for size in FILES] for threads in THREADS]
        texts = [[f"{cells[size, threads].rate / 1e6:.0f}" for size in FILES] for threads in THREADS]
        svg = draw.heat("MB/s that 4 nodes read, and as a colour the share of the bound", "threads a node", [str(threads) for threads in THREADS], names, shares, texts)
        (Path(out) / "sweep.svg").write_text(svg)
