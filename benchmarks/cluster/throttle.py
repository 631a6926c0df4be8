"""A store that refuses requests above a rate (503): images a second straight from it, through one node and through four."""

import http.client
import json
import os
import random
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bed import BUCKET, Bed
from rows import Timer
from store import read

FILES, BYTES, RATE, READERS, EPOCHS = 3_000, 100_000, 500, 16, 3


class Straight:
    """Clients that ask the store for each image, and again after a pause that doubles, as SDKs do."""

    def __init__(self, bed):
        self.bed, self.local, self.errors = bed, threading.local(), 0

    def read(self, node, number):
        if not hasattr(self.local, "at"):
            self.local.at = http.client.HTTPConnection("127.0.0.1", self.bed.port)
        for attempt in range(10):
            self.local.at.request("GET", f"/{BUCKET}/{number:05}")
            answer = self.local.at.getresponse()
            if zlib.crc32(answer.read()) == self.bed.sums[number] and answer.status == 200:
                return
            time.sleep(random.random() * min(20, 0.1 * 2**attempt))
        self.errors += 1


class Mounted:
    def __init__(self, bed):
        self.bed, self.errors = bed, 0

    def read(self, node, number):
        try:
            read(self.bed, node, number)
        except (OSError, ValueError):
            self.errors += 1


def refused(bed):
    """Requests that the store has refused so far, by its own count."""
    return bed.counters()["get"]["throttled"]


def epochs(how, nodes):
    """Images a second of each epoch."""
    rates = []
    for number in range(EPOCHS):
        order = random.Random(number).sample(range(FILES), FILES)
        shares = [(nodes[reader % len(nodes)], order[reader::READERS]) for reader in range(READERS)]
        with Timer() as timer, ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda share: [how.read(share[0], number) for number in share[1]], shares))
        rates.append(round(FILES / timer.seconds, 1))
    return rates


def run(rows):
    drawn = {}
    for name, nodes in [("straight", 0), ("through one node", 1), ("through four", 4)]:
        with Bed(FILES, BYTES, requests=RATE, throttle="503") as bed:
            if nodes:
                bed.mount(nodes, bed.total)
            seen, over = [], threading.Event()

            def watch():
                began = time.monotonic()
                while not over.wait(0.5):
                    seen.append((round(time.monotonic() - began, 1), refused(bed)))

            watching = threading.Thread(target=watch)
            watching.start()
            how = Mounted(bed) if nodes else Straight(bed)
            rates = epochs(how, list(range(max(nodes, 1))))
            over.set()
            watching.join()
            count = refused(bed)
            # Who asks straight shows that it refuses; that it has to refuse others is no promise. That they see no error is one.
            if nodes:
                rows.told(f"requests that it refused, {name}", 0, count)
            else:
                rows.add(f"requests that it refused, {name}", 0, count, ">= 1: it was asked for more than it gives", count >= 1)
            drawn[name] = {"images_per_second": rates, "refused_over_time": seen}
            measure, note = f"a store of {RATE} requests a second that refuses more, {name}: errors", f"images/s by epoch {rates}"
            if nodes:
                rows.at_most(measure, 0, how.errors, 0, note)
                # It gives so many at once before it refuses.
                rows.told(f"images a second of the first epoch, {name}", RATE, rates[0])
            else:
                rows.told(measure, 0, how.errors, note)
    if out := os.environ.get("OUT"):
        Path(out).mkdir(parents=True, exist_ok=True)
        (Path(out) / "throttle.json").write_text(json.dumps(drawn, indent=1) + "\n")
