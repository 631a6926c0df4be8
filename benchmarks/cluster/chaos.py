"""What can happen to members of a cluster, again and again while others read: no error, no wrong byte, nobody waits for long."""

import os
import random
import signal
import threading
import time

from bed import Bed, wait_for
from job import Job
from net import Net

FILES, BYTES, RATIO, TIMES = 600, 1_000_000, 0.52, int(os.environ.get("TIMES", 2))


class Readers:
    """Threads that read and compare files at random, and note how long each took."""

    def __init__(self, bed, nodes):
        self.job = Job(bed, nodes, 0, 0)
        self.over, self.held = threading.Event(), set()
        self.threads = [threading.Thread(target=self.work, args=(node, seed)) for node in nodes for seed in range(2)]
        for thread in self.threads:
            thread.start()

    def work(self, node, seed):
        chance = random.Random(10 * node + seed)
        while not self.over.is_set():
            if node in self.held:
                time.sleep(0.01)
            else:
                self.job.read(node, chance.randrange(FILES))

    def close(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Pool:
    """Three nodes that are read from, and a fourth that keeps its part for them."""

    def __init__(self):
        self.net = Net(4, 100e6)
        self.bed = Bed(FILES, BYTES, net=self.net)
        self.cache = int(RATIO * self.bed.total / 4)
        self.readers = None

    def begin(self):
        self.bed.write_hosts(4)
        for number in range(3):
            self.bed.mount_one(number, self.cache)
        self.keep()
        self.wait()
        self.readers = Readers(self.bed, [0, 1, 2])

    def keep(self):
        self.keeper = self.bed.serve_one(3, self.cache, memory="128MiB")

    def wait(self):
        wait_for(lambda: self.bed.all_answer(4), "all members answer each other")

    def killed(self):
        self.keeper.send_signal(signal.SIGKILL)
        self.keeper.wait()
        time.sleep(2)
        self.keep()

    def stopped(self):
        """It neither answers nor says that it doesn't."""
        self.keeper.send_signal(signal.SIGSTOP)
        time.sleep(2)
        self.keeper.send_signal(signal.SIGCONT)

    def unplugged(self):
        self.net.cable(3, "down")
        time.sleep(2)
        self.net.cable(3, "up")

    def unplugged_host(self):
        """A training host is gone, with its readers."""
        self.readers.held.add(2)
        time.sleep(0.5)
        self.net.cable(2, "down")
        time.sleep(2)
        self.net.cable(2, "up")
        self.wait()
        self.readers.held.discard(2)

    def parted(self):
        """Two see two, and all of them the store."""
        self.net.part([0, 1], [2, 3])
        time.sleep(2)
        self.net.heal()

    def slow(self):
        self.net.limit(3, 0.2e6)
        time.sleep(2)
        self.net.limit(3, self.net.rate)

    def damaged(self):
        """Bytes on the disk of the keeper change."""
        noticed = self.bed.figure("damaged")
        files = [path for path in (self.bed.scratch / "cache3").rglob("*") if path.is_file() and path.stat().st_size > BYTES // 2]
        for path in random.sample(files, 16):
            with open(path, "r+b", buffering=0) as file:
                file.seek(random.randrange(BYTES // 2))
                file.write(bytes(64))
        wait_for(lambda: self.bed.figure("damaged") > noticed, "somebody notices a damaged block")

    def two_views(self):
        """Two of the members are told of three, the others of four."""
        three = "".join(self.bed.hosts_of(0).read_text().splitlines(keepends=True)[:3])
        before = [self.bed.tell(number, three) for number in (0, 1)]
        # They look every two seconds.
        time.sleep(4)
        for number in (0, 1):
            self.bed.tell(number, before[0])
        time.sleep(3)

    def close(self):
        if self.readers:
            self.readers.close()
        self.bed.close()


def run(rows):
    pool = Pool()
    try:
        pool.begin()
        job, all_reads = pool.readers.job, 0
        time.sleep(5)
        for happens in [pool.killed, pool.stopped, pool.unplugged, pool.unplugged_host, pool.parted, pool.slow, pool.damaged, pool.two_views]:
            job.stalls, job.reads, job.errors, job.wrong = [], 0, 0, 0
            began, had = time.monotonic(), pool.bed.figure("had_bytes")
            for _ in range(TIMES):
                happens()
                pool.wait()
            name = happens.__name__.replace("_", " ")
            reads, all_reads = job.reads, all_reads + job.reads
            job.judge(rows, f"a member is {name}, {TIMES} times")
            stalls = sorted(seconds for _, seconds in job.stalls)
            had = (pool.bed.figure("had_bytes") - had) / (reads * BYTES)
            note = f"median {stalls[len(stalls) // 2]:.3f}, 99 of 100 {stalls[len(stalls) * 99 // 100]:.3f}, {had:.2f} of it from members"
            rows.at_most(f"a member is {name}: the longest read of 1 MB, seconds", 0, job.longest(began), 1, note)
        rows.add("reads that were compared meanwhile", 10_000, all_reads, ">= 10000", all_reads >= 10_000, f"{TIMES} times each")
    finally:
        pool.close()
