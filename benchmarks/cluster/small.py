"""Small objects of a store that takes its time, read cold."""

from bed import Bed
from job import Job


def run(rows):
    for declared in [False, True]:
        with Bed(10_000, 10_000, latency="100ms") as bed:
            # Just all of it fits on the four disks: no copies.
            bed.mount(4, int(1.1 * bed.total / 4))
            # 4 nodes with 4 readers each, 1,000 objects a second.
            job = Job(bed, [0, 1, 2, 3], 4 / 1_000, 1, workers=4, ahead=2, declared=declared)
            ends = job.run()
            au, how = job.au(ends, 0, 0), "order declared" if declared else "no order declared"
            measure = f"AU of a cold epoch: 10 KB objects, 100 ms, 16 readers, 1,000 a second, {how}"
            job.judge(rows, measure)
            if declared:
                rows.at_least(measure, 100, 100 * au, 0.95)
            else:
                rows.told(measure, 100, 100 * au)
