"""Members that end in the middle of a job: what readers notice, and what accelerators do."""

import os
import signal

from au import BYTES, DEMAND, FILES, STORE
from bed import Bed
from job import Job

RATIO, MEMBERS, TIMES = 0.52, 4, int(os.environ.get("TIMES", 1))


def dedicated_killed(rows):
    """Three nodes read, the fourth keeps its part for them; it is killed for two epochs, and comes back with what it kept."""
    with Bed(FILES, BYTES, bandwidth="64MB/s") as bed:
        cache = int(RATIO * bed.total / MEMBERS)
        bed.write_hosts(MEMBERS)
        for number in range(MEMBERS - 1):
            bed.mount_one(number, cache, memory="256MiB")
        keeper = bed.serve_one(MEMBERS - 1, cache)
        job = Job(bed, list(range(MEMBERS - 1)), (MEMBERS - 1) * BYTES / DEMAND, 7, declared=True)
        worst = []

        def at_epoch(epoch):
            nonlocal keeper
            worst.append(max(job.stalls, default=0))
            job.stalls = []
            if epoch == 2:
                keeper.send_signal(signal.SIGKILL)
                keeper.wait()
            if epoch == 4:
                keeper = bed.serve_one(MEMBERS - 1, cache)

        ends = job.run(at_epoch)
        beta = STORE / DEMAND
        without = min(1, beta / (1 - RATIO * (MEMBERS - 1) / MEMBERS))
        rows.at_least("AU while a dedicated node of 4 is gone, r = .52", 100 * without, 100 * job.au(ends, 2, 3), 0.98)
        rows.at_least("AU in the second epoch after its return", 100, 100 * job.au(ends, 6, 6), 0.98)
        rows.at_most("errors and wrong bytes meanwhile", 0, job.errors + job.wrong, 0, f"{job.reads} reads")
        # Slowest reads of epochs 1 (before) and 2 (after it was killed).
        rows.at_most("how much longer than before the slowest reader waited, seconds", 0, worst[3] - worst[2], 1)


def run(rows):
    for _ in range(TIMES):
        dedicated_killed(rows)
