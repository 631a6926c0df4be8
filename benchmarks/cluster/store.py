"""What the store gives for all nodes: bytes, lists, and what a join costs it."""

import contextlib
import os
import random
import statistics
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

from bed import Bed, content, sum_of, wait_for
from rows import Timer


def read(bed, node, number):
    """All of a file, compared."""
    if sum_of(bed.at(node) / f"{number:05}") != bed.sums[number]:
        raise ValueError(f"file {number} is wrong at node {node}")


def epoch(bed, nodes, seed=0, threads=2, dropping=True):
    """Every file once, each by the next node, in an order of its own. `dropping`: no cache file stays in the kernel's memory."""
    order = random.Random(seed).sample(range(bed.files), bed.files)
    shares = [(node, order[rank :: len(nodes)][worker::threads]) for rank, node in enumerate(nodes) for worker in range(threads)]

    def work(share):
        for number in share[1]:
            read(bed, share[0], number)

    if dropping:
        bed.drop()
    with bed.dropping() if dropping else contextlib.nullcontext(), ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(work, shares))


def settle(bed, nodes, ratio):
    """Epochs until the disks hold what they can. How many."""
    for number in range(1, 20):
        epoch(bed, nodes, number)
        if sum(node["limits"]["disk_used"] for node in bed.status()) >= 0.995 * min(1, ratio) * bed.total:
            return number
    raise TimeoutError("the disks never hold what they can")


def hits(rows, members=4, files=2_400, size=500_000):
    nodes = list(range(members))
    for ratio in [0.9, 1.0]:
        with Bed(files, size) as bed:
            bed.mount(members, int(ratio * bed.total / members), memory="64MiB")
            settled, count = settle(bed, nodes, ratio), 2
            sent, disks = bed.sent(), bed.tier("disk")
            for number in range(count):
                # What the kernel has of cache files is no hit more or less. Where it has nothing, some of their bytes count twice.
                epoch(bed, nodes, 100 + number, dropping=False)
            by_store = 1 - (bed.sent() - sent) / count / bed.total
            by_status = (bed.tier("disk") - disks) / count / bed.total
            note = f"{count} epochs after {settled} until the disks were full"
            # What was read last may be in memory still: then no disk is asked, and no store.
            rows.within(f"hits at r = {ratio}, {members} members", ratio, by_store, ratio - 0.005, ratio + 0.01, f"by what left the store, {note}")
            note = "bytes that they read for their readers and for each other; less by what readers had in memory"
            rows.within(f"hits at r = {ratio}, {members} members, on their disks by their own status", ratio, by_status, ratio - 0.005, ratio + 0.01, note)


def shards(rows):
    with Bed(64, 16_000_000) as bed:
        bed.mount(4, bed.total)
        records = [(shard, at) for shard in range(64) for at in range(0, 16_000_000, 100_000)]
        random.Random(1).shuffle(records)
        shards = {shard: content(shard, 16_000_000) for shard in range(64)}
        sums = {(shard, at): zlib.crc32(shards[shard][at : at + 100_000]) for shard, at in records}
        del shards

        def work(node):
            held = {}
            for shard, at in records[node::4]:
                held[shard] = held.get(shard) or os.open(bed.at(node) / f"{shard:05}", os.O_RDONLY)
                if zlib.crc32(os.pread(held[shard], 100_000, at)) != sums[shard, at]:
                    raise ValueError(f"a record of shard {shard} is wrong at node {node}")
            for descriptor in held.values():
                os.close(descriptor)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        rows.within("store bytes: 64 shards of 16 MB as shuffled records of 100 KB, 4 nodes, of the set", 1, bed.sent() / bed.total, 1, 1.005)


def one_file(rows):
    with Bed(1, 1_000_000_000, bandwidth="200MB/s") as bed:
        bed.mount(8, int(0.5 * bed.total / 8), memory="256MiB")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda node: read(bed, node, 0), range(8)))
        served = [node["cluster"]["served_bytes"] for node in bed.status()]
        rows.within("store bytes: 8 nodes read one 1 GB file at once, r = .5, of the file", 1, bed.sent() / bed.total, 1, 1.005)
        mean = sum(served) / len(served)
        rows.at_most("the busiest of them sends, of the mean", 1, max(served) / mean, 1.5, f"{sum(served) / 7e9:.3f} of what 7 others read")


def lists(rows):
    with Bed(2_000, 1_000) as bed:
        bed.write_hosts(4)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: bed.mount_one(number, 100_000_000), range(4)))
        wait_for(lambda: bed.all_answer(4), "all members answer")
        seen = [len(os.listdir(bed.at(number))) for number in range(4)]
        if seen != 4 * [2_000]:
            raise ValueError(f"2,000 files are seen as {seen}")
        count = bed.counters()["list"]["requests"]
        # Of 1,000 names a page, and one with which the store is asked whether it is there.
        rows.at_most("LIST requests of 4 nodes that start at once, of one listing", 1, count / 2, 1, f"{count} pages of 2")


def join(rows):
    """At once after the disks were filled, and after all have told each other what they keep, which they do every 10 s."""
    measure = "a fifth node joins at r = 1: store bytes, of the set"
    for name, pause in [(measure, 12), (f"{measure}, within 10 s after the disks were filled", 0)]:
        cost, missed = joined(pause)
        rows.at_most(name, 0, cost, 0.005, f"in two epochs with it; {missed:.4f} in the two before it, without it")


def joined(pause):
    """Of the set, what two epochs cost with a fifth, and the two before it."""
    with Bed(400, 1_000_000) as bed:
        bed.write_hosts(5)
        five = bed.hosts_of(0).read_text()
        for number in range(4):
            bed.tell(number, "".join(five.splitlines(keepends=True)[:4]))
        for number in range(4):
            bed.mount_one(number, int(1.01 * bed.total / 4))
        wait_for(lambda: bed.all_answer(4), "all members answer")
        settle(bed, [0, 1, 2, 3], 1)
        time.sleep(pause)
        # What the four miss as they are, in as many epochs.
        before = bed.sent()
        epoch(bed, [0, 1, 2, 3], 1)
        epoch(bed, [3, 2, 1, 0], 2)
        missed, before = bed.sent() - before, bed.sent()
        for number in range(4):
            bed.tell(number, five)
        bed.mount_one(4, int(1.01 * bed.total / 4))
        wait_for(lambda: bed.all_answer(5), "all know the fifth")
        epoch(bed, [4, 0, 1, 2, 3], 1)
        epoch(bed, [4, 3, 2, 1, 0], 2)
        return (bed.sent() - before) / bed.total, missed / bed.total


def cold(rows):
    """All of a set by four nodes, each byte through the wire of the store once, and kept on the way; with the fill of a mount that was not told
    otherwise, too."""
    for fill, how in [("off", ""), ("auto", ", fill auto")]:
        with Bed(300, 4_000_000, bandwidth="64MB/s") as bed:
            bed.mount(4, int(1.05 * bed.total / 4), fill=fill)
            with Timer() as timer:
                epoch(bed, [0, 1, 2, 3], threads=4)
            times = timer.seconds * 64e6 / bed.total
            rows.within(f"cold epoch over wire time{how}", 1, times, 0.98, 1.03)
            rows.within(f"store bytes of a cold epoch, of the set{how}", 1, bed.sent() / bed.total, 1, 1.005)
            before = bed.sent()
            epoch(bed, [0, 1, 2, 3], 1)
            share = (bed.sent() - before) / bed.total
            rows.at_most(f"store bytes of the epoch after it: the cache was filled in the same pass{how}", 0, share, 0.005)


def fill(rows):
    """Where each disk holds the set, a cluster is as fast as a private mount."""
    rates, costs, crossed = {}, {}, 0
    for alone in [True, False] * 3:
        with Bed(300, 2_000_000) as bed:
            if alone:
                bed.mount_one(0, bed.total, fill="all", alone=True)
            else:
                bed.mount(4, bed.total, fill="all")
            nodes = bed.nodes
            full = lambda: all(node["mounts"][0].get("kept_files") == bed.files for node in bed.status())
            wait_for(full, "each disk holds the set", 120)
            epoch(bed, nodes[:1])
            had, cpu, seconds = bed.figure("had_bytes"), bed.cpu_seconds(0), []
            # Processor time is counted in hundredths of a second: so many that one is nothing.
            for number in range(60):
                with Timer() as timer:
                    # From the kernel's memory: a disk would hide what each of them takes.
                    epoch(bed, nodes[:1], number, dropping=False)
                seconds.append(timer.seconds)
            costs.setdefault(alone, []).append((bed.cpu_seconds(0) - cpu) / len(seconds) / (bed.total / 1e9))
            crossed += 0 if alone else bed.figure("had_bytes") - had
            rates.setdefault(alone, []).append(bed.total / statistics.median(seconds))
    rows.at_most("peer bytes once each disk holds the set", 0, crossed, 0)
    share = statistics.mean(rates[False]) / statistics.mean(rates[True])
    rows.add("warm rate of a node of four whose disk holds the set, of a private mount's", 1, share, ">= 0.95", share >= 0.95)
    pool, private = statistics.mean(costs[False]), statistics.mean(costs[True])
    note = f"{1000 * pool:.1f} and {1000 * private:.1f} ms of the node that is read from"
    rows.add("CPU seconds a GB of a private mount, of those of a node of four then", 1, private / pool, ">= 0.95", private >= 0.95 * pool, note)


PARTS = {measure.__name__: measure for measure in [cold, hits, shards, one_file, lists, join, fill]}
