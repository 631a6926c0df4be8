"""What the store gives for all nodes: bytes, lists, and what a join costs it."""

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from bed import Bed, wait_for
from rows import Timer


def read(path, pieces=None, piece=1 << 20):
    """All of a file, or some pieces of it, past the kernel's cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        for at in pieces if pieces is not None else range(0, size, piece):
            os.pread(descriptor, piece, at)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def epoch(bed, nodes, seed=0, threads=2):
    """Every file once, each by the next node, in an order of its own."""
    order = random.Random(seed).sample(range(bed.files), bed.files)
    shares = [(node, order[rank :: len(nodes)][worker::threads]) for rank, node in enumerate(nodes) for worker in range(threads)]

    def work(share):
        for number in share[1]:
            read(bed.at(share[0]) / f"{number:05}")

    with ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(work, shares))


def hits(rows):
    for ratio in [0.9, 1.0]:
        with Bed(800, 500_000) as bed:
            bed.mount(4, int(ratio * bed.total / 4))
            for number in range(3):
                epoch(bed, [0, 1, 2, 3], number)
            # All have told by now how much room they have.
            time.sleep(12)
            epoch(bed, [0, 1, 2, 3], 8)
            before = bed.sent()
            epoch(bed, [0, 1, 2, 3], 9)
            share = 1 - (bed.sent() - before) / bed.total
            rows.add(f"hits at r = {ratio}, 4 members", ratio, share, f">= {ratio - 0.005}", share >= ratio - 0.005)


def shards(rows):
    with Bed(64, 16_000_000) as bed:
        bed.mount(4, bed.total)
        records = [(shard, at) for shard in range(64) for at in range(0, 16_000_000, 100_000)]
        random.Random(1).shuffle(records)

        def work(node):
            held = {}
            for shard, at in records[node::4]:
                held[shard] = held.get(shard) or os.open(bed.at(node) / f"{shard:05}", os.O_RDONLY)
                os.pread(held[shard], 100_000, at)
            for descriptor in held.values():
                os.close(descriptor)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        rows.at_most("store bytes: 64 shards of 16 MB as shuffled records of 100 KB, 4 nodes, of the set", 1, bed.sent() / bed.total, 1.005)


def one_file(rows):
    with Bed(1, 1_000_000_000, bandwidth="200MB/s") as bed:
        bed.mount(8, int(0.5 * bed.total / 8))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda node: read(bed.at(node) / "00000"), range(8)))
        served = [node["cluster"]["served_bytes"] for node in bed.status()]
        rows.at_most("store bytes: 8 nodes read one 1 GB file at once, r = .5, of the file", 1, bed.sent() / bed.total, 1.005)
        mean = sum(served) / len(served)
        rows.at_most("the busiest of them sends, of the mean", 1, max(served) / mean, 1.5, f"{sum(served) / 7e9:.3f} of what 7 others read")


def lists(rows):
    with Bed(2_000, 1_000) as bed:
        bed.write_hosts(4)
        threads = [threading.Thread(target=bed.mount_one, args=(number, 100_000_000)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = sum(node["store"]["lists"] for node in bed.status())
        # Of 1,000 names a page, and one with which the store is asked whether it is there.
        rows.at_most("LIST requests of 4 nodes that start at once, of one listing", 1, count / 2, 1, f"{count} pages of 2")


def join(rows):
    with Bed(400, 1_000_000) as bed:
        bed.write_hosts(5)
        five = (bed.scratch / "hosts").read_text()
        (bed.scratch / "hosts").write_text("".join(five.splitlines(keepends=True)[:4]))
        for number in range(4):
            bed.mount_one(number, bed.total)
        wait_for(lambda: bed.all_answer(4), "all members answer")
        epoch(bed, [0, 1, 2, 3])
        time.sleep(4)
        before = bed.sent()
        (bed.scratch / "hosts").write_text(five)
        bed.mount_one(4, bed.total)
        wait_for(lambda: all(len(node["cluster"]["members"]) == 5 for node in bed.status()), "all know the fifth")
        epoch(bed, [4, 0, 1, 2, 3], 1)
        epoch(bed, [4, 3, 2, 1, 0], 2)
        rows.at_most("a fifth node joins at r = 1: store bytes, of the set", 0, (bed.sent() - before) / bed.total, 0.005)


def cold(rows):
    """All of a set by four nodes, each byte through the wire of the store once, and kept on the way."""
    with Bed(300, 4_000_000, bandwidth="64MB/s") as bed:
        bed.mount(4, bed.total)
        with Timer() as timer:
            epoch(bed, [0, 1, 2, 3], threads=4)
        rows.at_most("cold epoch over wire time, cache filled in the same pass", 1, timer.seconds * 64e6 / bed.total, 1.03)
        rows.at_most("store bytes of a cold epoch, of the set", 1, bed.sent() / bed.total, 1.005)


def fill(rows):
    """Where each disk holds the set, a cluster is as fast as a private mount."""
    rates = {}
    for alone in [True, False, True, False]:
        with Bed(300, 2_000_000) as bed:
            if alone:
                bed.mount_one(0, bed.total, fill="all", alone=True)
            else:
                bed.mount(4, bed.total, fill="all")
            nodes = bed.nodes
            full = lambda: all(node["mounts"][0].get("kept_files") == bed.files for node in bed.status())
            wait_for(full, "each disk holds the set", 120)
            had, cpu, seconds = bed.figure("had_bytes"), bed.cpu_seconds(), []
            for number in range(6):
                with Timer() as timer:
                    epoch(bed, nodes[:1], number)
                seconds.append(timer.seconds)
            rates.setdefault(alone, []).append(bed.total / min(seconds))
            if not alone:
                rows.at_most("peer bytes once each disk holds the set", 0, bed.figure("had_bytes") - had, 0)
    share = max(rates[False]) / max(rates[True])
    rows.add("warm rate of a node of four whose disk holds the set, of a private mount's", 1, share, ">= 0.95", share >= 0.95)


def run(rows):
    for measure in [cold, hits, shards, one_file, lists, join, fill]:
        measure(rows)
