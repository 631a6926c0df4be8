"""A training job over the mounts of several nodes: accelerators that step together, each with workers that load ahead."""

import queue
import random
import threading
import time

from bed import sum_of


class Job:
    """One accelerator a node, batch 1. What is read is compared, and leaves the kernel's cache at once.

    `declared`: each says its order beforehand. An epoch more is loaded than is run: loaders that have nothing left to load ahead would let the store idle in the end.
    """

    def __init__(self, bed, nodes, step_seconds, epochs, workers=4, ahead=2, seed=1, declared=False):
        self.bed, self.nodes, self.step, self.epochs = bed, nodes, step_seconds, epochs
        self.workers, self.ahead, self.declared = workers, ahead, declared
        chance = random.Random(seed)
        self.orders = [chance.sample(range(bed.files), bed.files) for _ in range(epochs + 1)]
        self.steps = bed.files // len(nodes)
        self.errors, self.wrong, self.reads = 0, 0, 0
        # Reads that have ended: when each began, and how long it took; and when those began that have not.
        self.stalls, self.reading = [], {}
        # Of each step, when the last had its batch, and how long all had waited for it.
        self.waits = []
        self.lock = threading.Lock()
        self.over = False

    def samples(self, rank):
        for order in self.orders:
            yield from order[rank :: len(self.nodes)][: self.steps]

    def read(self, node, number):
        began = time.monotonic()
        with self.lock:
            self.reading[threading.get_ident()] = began
        try:
            is_right = self.compare(node, number)
        except OSError:
            is_right = None
        with self.lock:
            del self.reading[threading.get_ident()]
            self.reads += 1
            self.errors += is_right is None
            self.wrong += is_right is False
            self.stalls.append((began, time.monotonic() - began))

    def compare(self, node, number):
        return sum_of(self.bed.at(node) / f"{number:05}") == self.bed.sums[number]

    def longest(self, since=0):
        """The longest that a read took that was under way at some time since then, whether it has ended or not."""
        now = time.monotonic()
        with self.lock:
            ended = [seconds for began, seconds in self.stalls if began + seconds >= since]
            return max([*ended, *(now - began for began in self.reading.values())], default=0)

    def longest_wait(self, since=0):
        """The longest that accelerators stood idle for one batch, which is the slowest one's wait."""
        return max((waited for at, waited in self.waits if at >= since), default=0)

    def judge(self, rows, what):
        rows.at_most(f"errors and wrong bytes: {what}", 0, self.errors + self.wrong, 0, f"{self.reads} reads")

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
        with self.bed.dropping():
            return self.run_dropped(at_epoch)

    def run_dropped(self, at_epoch):
        # Also what is said beforehand takes its time.
        lanes, began = [], time.monotonic()
        for rank, node in enumerate(self.nodes):
            all_mine = list(self.samples(rank))
            if self.declared:
                self.bed.hint(node, all_mine)
            queues = [queue.Queue(self.ahead) for _ in range(self.workers)]
            for worker, ready in enumerate(queues):
                mine = all_mine[worker :: self.workers]
                threading.Thread(target=self.work, args=(node, mine, ready), daemon=True).start()
            lanes.append(queues)
        ends, count, over_at = [0.0], 0, began
        for epoch in range(self.epochs):
            if at_epoch:
                at_epoch(epoch)
            for _ in range(self.steps):
                ready_at = [queues[count % self.workers].get() for queues in lanes]
                count += 1
                # The barrier is passed when the last has its batch and all have computed; that this loop wakes up later is no
                # accelerator's idleness.
                self.waits.append((max(ready_at), max(0, max(ready_at) - over_at)))
                over_at = max(over_at, *ready_at) + self.step
                time.sleep(max(0, over_at - time.monotonic()))
            ends.append(over_at - began)
        self.over = True
        return ends

    def au(self, ends, first, last):
        """Utilisation over the epochs from first to last (0 is the cold one), by nominal step times."""
        return (last - first + 1) * self.steps * self.step / (ends[last + 1] - ends[first])
