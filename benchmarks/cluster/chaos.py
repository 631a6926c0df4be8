"""What can happen to members of a cluster, again and again while others read: no error, no wrong byte, nobody waits for long."""

import os
import random
import signal
import threading
import time

from bed import Bed, wait_for
from etcd import Etcd
from job import Job
from net import Net

FILES, BYTES, RATIO, TIMES = 600, 1_000_000, 0.52, int(os.environ.get("TIMES", 2))
# The second is asked for most, and has a disk to match.
WEIGHTS = [1, 2, 1, 1]


class Readers:
    """Threads that read and compare files at random, and note how long each took."""

    def __init__(self, bed, nodes):
        self.job = Job(bed, nodes, 0, 0)
        self.over, self.held, self.reading = threading.Event(), set(), set()
        self.threads = [threading.Thread(target=self.work, args=(node, seed)) for node in nodes for seed in range(2)]
        for thread in self.threads:
            thread.start()

    def work(self, node, seed):
        chance = random.Random(10 * node + seed)
        while not self.over.is_set():
            self.reading.add((node, seed))
            if node not in self.held:
                self.job.read(node, chance.randrange(FILES))
            self.reading.discard((node, seed))
            if node in self.held:
                time.sleep(0.01)

    def hold(self, node):
        """No more is read there, and what is being read has been."""
        self.held.add(node)
        wait_for(lambda: not any(node == reader for reader, _ in list(self.reading)), "its readers rest")

    def close(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Pool:
    """Three nodes that are read from, and a fourth that keeps its part for them."""

    def __init__(self, hosts=4):
        self.net = Net(hosts, 100e6)
        self.bed = Bed(FILES, BYTES, net=self.net)
        self.readers, self.most_asked = None, []

    def begin(self):
        self.bed.write_hosts(4, WEIGHTS)
        for number in range(3):
            self.mount(number)
        self.keep()
        self.wait()
        self.readers = Readers(self.bed, [0, 1, 2])

    def told(self, number):
        return self.bed.told_by_file(number)

    def cache(self, number):
        return int(RATIO * self.bed.total * WEIGHTS[number] / sum(WEIGHTS))

    def mount(self, number):
        self.bed.mount_one(number, self.cache(number), told=self.told(number))

    def keep(self):
        self.keeper = self.bed.serve_one(3, self.cache(3), memory="128MiB", told=self.told(3))

    def wait(self):
        wait_for(lambda: self.bed.all_answer(4), "all members answer each other")

    def killed(self):
        self.keeper.send_signal(signal.SIGKILL)
        self.keeper.wait()
        time.sleep(2)
        self.keep()

    def the_one_that_others_ask_most_and_killed(self):
        """Whichever that is, and whoever reads there."""
        served = lambda: {node["cache"]: node["cluster"]["served_bytes"] for node in self.bed.status()}
        before = served()
        time.sleep(1)
        most = max((after - before[cache], cache) for cache, after in served().items())[1]
        number = next(number for number in range(4) if most == str(self.bed.scratch / f"cache{number}"))
        self.most_asked.append(number)
        if number == 3:
            return self.killed()
        self.readers.hold(number)
        self.bed.kill(number)
        time.sleep(2)
        self.mount(number)
        self.wait()
        self.readers.held.discard(number)

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
        self.readers.hold(2)
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
        noticed, began = self.bed.figure("damaged"), time.time()
        files = [path for path in (self.bed.scratch / "cache3").rglob("*") if path.is_file() and path.stat().st_size > BYTES // 2]
        for path in random.sample(files, 16):
            with open(path, "r+b", buffering=0) as file:
                file.seek(random.randrange(BYTES // 2))
                file.write(bytes(64))
        # Who reads it from the disk, or who it is sent to.
        told = lambda: any("damaged" in error["text"] and error["at"] > began for node in self.bed.status() for error in node["errors"])
        wait_for(lambda: told() or self.bed.figure("damaged") > noticed, "somebody notices a damaged block")
        # The others are read meanwhile, too.
        time.sleep(2)

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


class Told(Pool):
    """The same, but etcd tells of the members, from a host of its own."""

    def __init__(self):
        super().__init__(hosts=5)
        self.etcd = Etcd(self.net, 4, self.bed.scratch)

    def told(self, number):
        weight = ["--name", f"n{number}", "--weight", str(WEIGHTS[number])]
        return ["--members", self.etcd.members, "--listen", f"{self.net.address(number)}:7865", *weight]

    def etcd_out_of_reach(self):
        """For longer than a member stays one that etcd doesn't hear of; until each has noticed, and after that."""
        self.net.cable(4, "down")
        time.sleep(12)
        wait_for(lambda: all(self.troubles()), "each member says that etcd is out of reach")
        self.net.cable(4, "up")
        wait_for(lambda: not any(self.troubles()), "none says so any more")

    def etcd_killed_and_back_with_nothing(self):
        self.etcd.kill()
        time.sleep(2)
        self.etcd.forget()
        self.etcd.start()
        wait_for(lambda: self.etcd.names() == {f"n{number}" for number in range(4)}, "all have written themselves again")

    def troubles(self):
        return ["members_trouble" in node["cluster"] for node in self.bed.status()]

    def close(self):
        super().close()
        self.etcd.kill()


def judge(rows, pool, events, subject):
    """How many reads were compared meanwhile."""
    job, all_reads = pool.readers.job, 0
    time.sleep(5)
    for happens in events:
        job.stalls, job.reads, job.errors, job.wrong = [], 0, 0, 0
        began, had = time.monotonic(), pool.bed.figure("had_bytes")
        for _ in range(TIMES):
            happens()
            pool.wait()
        name = f"{subject}{happens.__name__.replace('_', ' ')}"
        reads, all_reads = job.reads, all_reads + job.reads
        job.judge(rows, f"{name}, {TIMES} times")
        stalls = sorted(seconds for _, seconds in job.stalls)
        had = (pool.bed.figure("had_bytes") - had) / (reads * BYTES)
        note = f"median {stalls[len(stalls) // 2]:.3f}, 99 of 100 {stalls[len(stalls) * 99 // 100]:.3f}, {had:.2f} of it from members"
        if happens.__name__.startswith("the_one"):
            note += f"; it was {', '.join(f'n{number}' for number in pool.most_asked)}"
        rows.at_most(f"{name}: the longest read of 1 MB, seconds", 0, job.longest(began), 1, note)
    return all_reads


def judged(rows, pool, events, subject):
    with pool.bed.dropping():
        return judge(rows, pool, events, subject)


def run(rows):
    reads, pool = 0, Pool()
    try:
        pool.begin()
        members = [pool.killed, pool.the_one_that_others_ask_most_and_killed, pool.stopped, pool.unplugged, pool.unplugged_host]
        members += [pool.parted, pool.slow, pool.damaged, pool.two_views]
        reads += judged(rows, pool, members, "a member is ")
    finally:
        pool.close()
    pool = Told()
    try:
        pool.begin()
        reads += judged(rows, pool, [pool.etcd_out_of_reach, pool.etcd_killed_and_back_with_nothing], "")
    finally:
        pool.close()
    rows.add("reads that were compared meanwhile", 10_000, reads, ">= 10000", reads >= 10_000, f"{TIMES} times each")
    rows.add("times that each of it happened", 20, TIMES, ">= 20", TIMES >= 20)
