"""One half of the files is read, then the other, by a pool whose disks hold a half: what of the second is hit, by the store's own
count."""

import random
from concurrent.futures import ThreadPoolExecutor

from bed import Bed, sum_of

MEMBERS, FILES, BYTES, BEFORE, AFTER = 4, 400, 1_000_000, 5, 8


def epoch(bed, files, chance):
    """Each file is read once, by any of the nodes. What of it did not leave the store."""
    before, order = bed.sent(), chance.sample(files, len(files))

    def work(node):
        for number in order[node::MEMBERS]:
            if sum_of(bed.at(node) / f"{number:05}") != bed.sums[number]:
                raise ValueError(f"{number:05} is wrong at node {node}")

    with ThreadPoolExecutor(MEMBERS) as pool:
        list(pool.map(work, range(MEMBERS)))
    return 1 - (bed.sent() - before) / (len(files) * bed.bytes_each)


def run(rows):
    for fill, room in [("off", 1.0), ("auto", 1.3)]:
        with Bed(FILES, BYTES) as bed:
            half, chance = FILES // 2, random.Random(7)
            bed.mount(MEMBERS, int(room * half * BYTES / MEMBERS), fill=fill, memory="64MiB")
            first = [epoch(bed, range(half), chance) for _ in range(BEFORE)]
            second = [epoch(bed, range(half, FILES), chance) for _ in range(AFTER)]
            note = f"by epoch {[round(hits, 3) for hits in first]}, then {[round(hits, 3) for hits in second]}"
            share = sum(second[-2:]) / 2
            rows.add(f"hits of a set after another, fill {fill}, room for {room}, epochs 7 and 8", 1, share, ">= 0.95", share >= 0.95, note)
