"""A training job over the mounts of several nodes: accelerators that step together, each with workers that load ahead."""

import os
import queue
import random
import threading
import time
import zlib


class Job:
    """One accelerator a node, batch 1. What is read is compared, and leaves the kernel's cache at once.

    `declared`: each says its order beforehand. An epoch more is loaded than is run: loaders that have nothing left to load ahead would let the store idle in the end.
    """

    def __init__(self, bed, nodes, step_seconds, epochs, workers=4, ahead=2, seed=1, declared=False):
        self.bed, self.nodes, self.step, self.epochs = bed, nodes, step_seconds, epochs
        self.workers, self.ahead, self.declared = workers, ahead, declared
        self.sums = [zlib.crc32((bed.scratch / "data" / f"{n:05}").read_bytes()) for n in range(bed.files)]
        chance = random.Random(seed)
        self.orders = [chance.sample(range(bed.files), bed.files) for _ in range(epochs + 1)]
        self.steps = bed.files // len(nodes)
        self.errors, self.wrong, self.reads, self.stalls = 0, 0, 0, []
        self.lock = threading.Lock()
        self.over = False

    def samples(self, rank):
        for order in self.orders:
            yield from order[rank :: len(self.nodes)][: self.steps]

    def read(self, node, number):
        began = time.monotonic()
        try:
            descriptor = os.open(self.bed.at(node) / f"{number:05}", os.O_RDONLY)
            try:
                crc, at = 0, 0
                while piece := os.pread(descriptor, 1 << 20, at):
                    crc, at = zlib.crc32(piece, crc), at + len(piece)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
            is_right = crc == self.sums[number]
        except OSError:
            is_right = None
        with self.lock:
            self.reads += 1
            self.errors += is_right is None
            self.wrong += is_right is False
            self.stalls.append(time.monotonic() - began)

    def work(self, node, mine, ready):
        for number in mine:
            if self.over:
                return
            self.read(node, number)
            ready_at = time.monotonic()
            while not self.over:
                try:
                    ready.put(ready_at, timeout=1)
                    break
                except queue.Full:
                    pass

    def run(self, at_epoch=None):
        """Seconds at which each epoch ended, beginning with 0 for the start. `at_epoch(e)` is called before epoch e."""
        lanes = []
        for rank, node in enumerate(self.nodes):
            all_mine = list(self.samples(rank))
            if self.declared:
                self.bed.hint(node, all_mine)
            queues = [queue.Queue(self.ahead) for _ in range(self.workers)]
            for worker, ready in enumerate(queues):
                mine = all_mine[worker :: self.workers]
                threading.Thread(target=self.work, args=(node, mine, ready), daemon=True).start()
            lanes.append(queues)
        began = time.monotonic()
        ends, count, over_at = [0.0], 0, began
        for epoch in range(self.epochs):
            if at_epoch:
                at_epoch(epoch)
            for _ in range(self.steps):
                ready_at = [queues[count % self.workers].get() for queues in lanes]
                count += 1
                # The barrier is passed when the last has its batch and all have computed; that this loop wakes up later is no
                # accelerator's idleness.
                over_at = max(over_at, *ready_at) + self.step
                time.sleep(max(0, over_at - time.monotonic()))
            ends.append(over_at - began)
        self.over = True
        return ends

    def au(self, ends, first, last):
        """Utilisation over the epochs from first to last (0 is the cold one), by nominal step times."""
        return (last - first + 1) * self.steps * self.step / (ends[last + 1] - ends[first])
