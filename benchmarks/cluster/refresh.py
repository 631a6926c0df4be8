"""A set is listed again while all members read it: by one of them, once, and no file is read as a mix of two versions."""

import os
import random
import subprocess
import threading
import time
import zlib

from bed import STOKER, Bed, content, sum_of, wait_for
from store import epoch

FILES, BYTES, NODES, PAGE = 2_000, 100_000, 4, 1_000
# So large that whoever holds one open in the middle has yet to ask for most of it.
LARGE, LARGE_BYTES = 8, 20_000_000
CHANGED = range(0, FILES, 2)


class Readers:
    """Two threads a node that read files at random, and note of which version each was."""

    def __init__(self, bed, newer):
        self.sums = [[old, newer.get(number)] for number, old in enumerate(bed.sums)]
        self.bed, self.over, self.reads, self.lock = bed, threading.Event(), [], threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(node, seed)) for node in range(NODES) for seed in range(2)]
        for thread in self.threads:
            thread.start()

    def work(self, node, seed):
        chance = random.Random(10 * node + seed)
        while not self.over.is_set():
            number, began = chance.randrange(FILES), time.monotonic()
            try:
                crc = sum_of(self.bed.at(node) / f"{number:05}")
                version = self.sums[number].index(crc) if crc in self.sums[number] else "a mix"
            except OSError as error:
                version = os.strerror(error.errno)
            with self.lock:
                self.reads.append((began, number, version))

    def close(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Held:
    """A file that was opened, and read in part, before anything changed."""

    def __init__(self, bed, node, name, crc):
        self.file = open(bed.at(node) / name, "rb", buffering=0)
        self.sum, self.crc = crc, zlib.crc32(self.file.read(BYTES // 2))

    def ends_right(self):
        with self.file:
            try:
                while piece := self.file.read(BYTES):
                    self.crc = zlib.crc32(piece, self.crc)
            except OSError:
                return False
        return self.crc == self.sum


def listed(bed):
    """When the names were listed that each member goes by."""
    return [node["mounts"][0]["listed_at"] for node in bed.status()]


def run(rows):
    with Bed(FILES, BYTES) as bed:
        # Room for what is old and what is new.
        large = {large_name(number): bed.put(large_name(number), content(4 * FILES + number, LARGE_BYTES)) for number in range(LARGE)}
        bed.mount(NODES, int(2.2 * (bed.total + LARGE * LARGE_BYTES) / NODES))
        bed.load(0)
        epoch(bed, list(range(NODES)))
        newer = {number: content(number + FILES, BYTES) for number in CHANGED}
        readers = Readers(bed, {number: zlib.crc32(each) for number, each in newer.items()})
        try:
            judge(rows, bed, readers, newer, large)
        finally:
            readers.close()


def large_name(number):
    return f"large-{number:02}"


def judge(rows, bed, readers, newer, large):
    chance = random.Random(5)
    held = [Held(bed, node, f"{number:05}", bed.sums[number]) for node in range(NODES) for number in chance.sample(CHANGED, 16)]
    held += [Held(bed, node, name, crc) for node in range(NODES) for name, crc in large.items()]
    time.sleep(2)
    lists, before = bed.counters()["list"]["requests"], listed(bed)
    for number, each in newer.items():
        bed.put(number, each)
    bed.put(FILES, content(3 * FILES, BYTES))
    for number in range(LARGE):
        bed.put(large_name(number), content(5 * FILES + number, LARGE_BYTES))
    time.sleep(1)
    told = time.monotonic()
    subprocess.run([STOKER, "refresh", bed.at(1)], env=bed.environment, check=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: len(set(listed(bed))) == 1 and min(listed(bed)) > max(before), "all members go by the new names")
    followed = time.monotonic()
    time.sleep(3)
    count, pages = bed.counters()["list"]["requests"] - lists, -(-(FILES + 1 + LARGE) // PAGE)
    ended_right = sum(each.ends_right() for each in held)
    readers.close()
    odd = {}
    for _, _, version in readers.reads:
        if version not in (0, 1):
            odd[version] = odd.get(version, 0) + 1
    early = sum(began < told and version == 1 for began, _, version in readers.reads)
    late = sum(began > followed and version == 0 and number in newer for began, number, version in readers.reads)
    after = sum(began > followed for began, _, _ in readers.reads)
    names = [len(os.listdir(bed.at(node))) for node in range(NODES)]
    rows.at_most("LIST requests of a refresh under readers of 4 nodes, of one listing", 1, count / pages, 1, f"{count} requests, {pages} pages")
    rows.at_most("reads meanwhile that fail or mix two versions", 0, sum(odd.values()), 0, f"{len(readers.reads)} reads {odd or ''}")
    rows.add("files that were open before and are read to their end in their version", len(held), ended_right, f"= {len(held)}", ended_right == len(held))
    note = f"{after} reads, {names} names, {followed - told:.2f} s until all members followed"
    alike = len(set(names)) == 1 and names[0] == FILES + 1 + LARGE
    rows.add("reads of an old version once all members go by the new names, or of a new one before", 0, early + late, "<= 0, all names", early + late == 0 and alike, note)
