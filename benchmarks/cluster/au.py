"""How busy accelerators are at several cache ratios: the experiment of JuiceFS on MLPerf Storage at a scale of 1 to 580."""

from bed import Bed
from job import Job

FILES, BYTES, STORE, DEMAND, NODES, EPOCHS = 300, 4_000_000, 64e6, 132.4e6, 4, 5
RATIOS = [0, 0.25, 0.45, 0.52]


def measure(rows, ratio, declared):
    with Bed(FILES, BYTES, bandwidth="64MB/s") as bed:
        bed.mount(NODES, int(ratio * bed.total / NODES), memory="256MiB")
        job = Job(bed, list(range(NODES)), NODES * BYTES / DEMAND, EPOCHS, declared=declared)
        sent, cpu = [], bed.cpu_seconds()
        ends = job.run(lambda epoch: sent.append(bed.sent()))
        sent.append(bed.sent())
        bound = min(1, STORE / ((1 - ratio) * DEMAND))
        shares = [round((after - before) / bed.total, 4) for before, after in zip(sent, sent[1:])]
        how = "order declared" if declared else "no order declared"
        note = f"store bytes by epoch {shares}, {bed.cpu_seconds() - cpu:.1f} s of CPU, slowest read {max(job.stalls):.2f} s"
        rows.at_least(f"AU of epochs 2-5 at cache ratio {ratio}, {how}", 100 * bound, 100 * job.au(ends, 1, EPOCHS - 1), 0.98, note)
        rows.at_most(f"errors and wrong bytes at cache ratio {ratio}, {how}", 0, job.errors + job.wrong, 0)


def run(rows):
    for ratio in RATIOS:
        for declared in [False, True]:
            measure(rows, ratio, declared)
