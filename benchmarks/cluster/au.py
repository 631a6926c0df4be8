"""AU at several cache ratios: the experiment of JuiceFS on MLPerf Storage at a scale of 1 to 580 (docs/cluster.md)."""

import os
import sys
from bed import Bed
from job import Job

FILES, BYTES, STORE, DEMAND, NODES, EPOCHS = 300, 4_000_000, 64e6, 132.4e6, 4, 5


def measure(ratio, nodes=NODES, epochs=EPOCHS):
    with Bed(FILES, BYTES, bandwidth="64MB/s") as bed:
        bed.mount(nodes, int(ratio * bed.total / nodes))
        job = Job(bed, list(range(nodes)), nodes * BYTES / DEMAND, epochs, workers=int(os.environ.get("WORKERS", 4)), ahead=int(os.environ.get("AHEAD", 2)))
        sent = []
        cpu = bed.cpu_seconds()
        ends = job.run(lambda epoch: sent.append(bed.sent()))
        sent.append(bed.sent())
        bound = min(1, STORE / ((1 - ratio) * DEMAND)) if ratio < 1 else 1
        au = job.au(ends, 1, epochs - 1)
        shares = [round((after - before) / bed.total, 4) for before, after in zip(sent, sent[1:])]
        print(f"r={ratio}: AU {100 * au:.1f} bound {100 * bound:.1f} share {au / bound:.3f}; cold {100 * job.au(ends, 0, 0):.1f}; "
              f"store/set by epoch {shares}; cpu {bed.cpu_seconds() - cpu:.1f} s; errors {job.errors} wrong {job.wrong} "
              f"slowest {max(job.stalls):.2f} s; {[(n['cluster']['placed'], n['cluster']['around'], n['cluster']['broken']) for n in bed.status()]}", flush=True)
        return au, bound


for ratio in [float(word) for word in sys.argv[1:]] or [0, 0.25, 0.45, 0.52]:
    measure(ratio)
