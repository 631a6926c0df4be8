"""Members that end in the middle of a job: what readers notice, and what accelerators do."""

import os
import signal
import time

from au import BYTES, DEMAND, FILES, STORE
from bed import Bed
from job import Job

RATIO, MEMBERS, TIMES = 0.52, 4, int(os.environ.get("TIMES", 1))


def dedicated_killed(rows):
    """Three nodes read, the fourth keeps its part for them; it is killed for three epochs, and comes back with what it kept."""
    with Bed(FILES, BYTES, bandwidth="64MB/s") as bed:
        cache = int(RATIO * bed.total / MEMBERS)
        bed.write_hosts(MEMBERS)
        for number in range(MEMBERS - 1):
            bed.mount_one(number, cache, memory="256MiB")
        keeper = bed.serve_one(MEMBERS - 1, cache)
        job = Job(bed, list(range(MEMBERS - 1)), (MEMBERS - 1) * BYTES / DEMAND, 8, declared=True)
        before, killed_at = 0, 0

        def at_epoch(epoch):
            nonlocal keeper, before, killed_at
            if epoch == 2:
                before, killed_at = job.longest(), time.monotonic()
                keeper.send_signal(signal.SIGKILL)
                keeper.wait()
            if epoch == 5:
                keeper = bed.serve_one(MEMBERS - 1, cache)

        ends = job.run(at_epoch)
        beta = STORE / DEMAND
        without = min(1, beta / (1 - RATIO * (MEMBERS - 1) / MEMBERS))
        rows.at_least("AU while a dedicated node of 4 is gone, r = .52", 100 * without, 100 * job.au(ends, 3, 4), 0.98)
        rows.at_least("AU in the second epoch after its return", 100, 100 * job.au(ends, 7, 7), 0.98)
        job.judge(rows, "a dedicated node of 4 is killed")
        # With an order declared, a read also waits for its turn at a store that just carries the job.
        note = f"slowest before {before:.2f} s"
        rows.at_most("how much longer than before the slowest reader waited, seconds", 0, job.longest(killed_at) - before, 1, note)


def run(rows):
    for _ in range(TIMES):
        dedicated_killed(rows)
