"""Members that end in the middle of a job: what readers notice, and what accelerators do."""

import os
import signal
import threading
import time

from au import BYTES, DEMAND, FILES, STORE
from bed import Bed, wait_for
from job import Job

RATIO, MEMBERS, TIMES = 0.52, 4, int(os.environ.get("TIMES", 1))
# Before which epochs it ends and is started again, of how many.
KILLED, BACK, EPOCHS = 2, 5, 8
WORKERS, AHEAD = 4, 2


class Killed:
    """Three nodes read, the fourth keeps its part for them; it is killed for three epochs, and comes back with what it kept."""

    def __init__(self):
        with Bed(FILES, BYTES, bandwidth="64MB/s") as bed:
            self.bed, self.cache = bed, int(RATIO * bed.total / MEMBERS)
            bed.write_hosts(MEMBERS)
            for number in range(MEMBERS - 1):
                bed.mount_one(number, self.cache, memory="256MiB")
            self.keeper = bed.serve_one(MEMBERS - 1, self.cache)
            readers = list(range(MEMBERS - 1))
            self.job = Job(bed, readers, len(readers) * BYTES / DEMAND, EPOCHS, WORKERS, AHEAD, declared=True)
            self.killed_at, self.took = None, None
            # Steps go on while it starts.
            self.back = threading.Thread(target=self.start)
            ends = self.job.run(self.at_epoch)
            self.back.join()
            # Before all ends: what is still being read then fails.
            self.reads, self.bad = self.job.reads, self.job.errors + self.job.wrong
            self.slowest, self.waited = self.job.longest(self.killed_at), self.job.longest_wait(self.killed_at)
        self.gone, self.again, self.last = (100 * self.job.au(ends, first, last) for first, last in [(KILLED, BACK - 1), (BACK, EPOCHS - 1), (EPOCHS - 1, EPOCHS - 1)])

    def at_epoch(self, epoch):
        if epoch == KILLED:
            self.before, self.waited_before = self.job.longest(), self.job.longest_wait()
            self.killed_at = time.monotonic()
            self.keeper.send_signal(signal.SIGKILL)
            self.keeper.wait()
        if epoch == BACK:
            self.back.start()

    def start(self):
        began = time.monotonic()
        self.bed.serve_one(MEMBERS - 1, self.cache)
        wait_for(lambda: self.bed.all_answer(MEMBERS), "all members answer each other", 60)
        self.took = time.monotonic() - began


def listed(values):
    return ", ".join(f"{value:.1f}" for value in values)


def judge_use(rows, times):
    """Of several times the worst counts."""
    gone, again, last = ([getattr(each, name) for each in times] for name in ("gone", "again", "last"))
    epochs = BACK - KILLED
    # Of the set, what the store has to give in one epoch, and what lies ready before accelerators when it all begins.
    each = 1 - RATIO * (MEMBERS - 1) / MEMBERS
    ready = (MEMBERS - 1) * WORKERS * (AHEAD + 1) / FILES
    bound = 100 * min(1, STORE / DEMAND / each)
    head = 100 * min(1, STORE / DEMAND * epochs / (epochs * each - ready))
    note = f"{listed(gone)}; the bound is what the store carries with {1 - each:.2f} of the set on three disks, at most {head:.1f} with all queues full before"
    name = "AU of the three epochs in which a dedicated node of 4 is killed and gone, r = .52"
    rows.within(name, bound, min(gone), 0.98 * bound, 1.02 * head, note)
    rows.at_most(f"{name}: the most of all times", round(head, 4), max(gone), round(1.02 * head, 4))
    took = max(each.took for each in times)
    step = epochs * FILES * BYTES / DEMAND
    late = 100 * step / (step + (1 - bound / 100) * took)
    note = f"{listed(again)}; the bound is that of four disks; {late:.1f} if the store alone had carried the {took:.1f} s until all members saw it again"
    rows.at_least("AU of the three epochs after it is started again", 100, min(again), 0.98, note)
    rows.at_least("AU in the third epoch after its return", 100, min(last), 0.98, listed(last))


def run(rows):
    times = [Killed() for _ in range(TIMES)]
    judge_use(rows, times)
    reads, bad = sum(each.reads for each in times), sum(each.bad for each in times)
    rows.at_most("errors and wrong bytes: a dedicated node of 4 is killed", 0, bad, 0, f"{reads} reads")
    # With an order declared, a read also waits for its turn at a store that just carries the job.
    rows.at_most("the longest read of 4 MB after the kill, seconds", 0, max(each.slowest for each in times), 1, f"before it {max(each.before for each in times):.2f}")
    note = f"that of the slowest worker, for whom all wait; before it {max(each.waited_before for each in times):.2f}"
    rows.told("the longest that an accelerator waited for one batch after the kill, seconds", 0, max(each.waited for each in times), note)
    rows.add("reads that were compared while a dedicated node is killed", 10_000, reads, ">= 10000", reads >= 10_000, f"{TIMES} kills")
    rows.add("times that a dedicated node is killed", 20, TIMES, ">= 20", TIMES >= 20)
