"""How busy accelerators are at several cache ratios: the experiment of JuiceFS on MLPerf Storage at a scale of 1 to 580."""

from functools import partial

from bed import Bed
from job import Job

FILES, BYTES, STORE, DEMAND, NODES, EPOCHS = 300, 4_000_000, 64e6, 132.4e6, 4, 5
# From the least on that disks alone can explain, for JuiceFS's figure.
NEEDED = [0.485, 0.49, 0.5]


def measure(rows, ratio, declared=True):
    with Bed(FILES, BYTES, bandwidth="64MB/s") as bed:
        bed.mount(NODES, int(ratio * bed.total / NODES), memory="256MiB")
        job = Job(bed, list(range(NODES)), NODES * BYTES / DEMAND, EPOCHS, declared=declared)
        sent, cpu = [], bed.cpu_seconds()
        ends = job.run(lambda epoch: sent.append(bed.sent()))
        sent.append(bed.sent())
        bound = min(1, STORE / ((1 - ratio) * DEMAND))
        shares = [round((after - before) / bed.total, 4) for before, after in zip(sent, sent[1:])]
        how = "order declared" if declared else "no order declared"
        note = f"store bytes by epoch {shares}, {bed.cpu_seconds() - cpu:.1f} s of CPU, slowest read {job.longest():.2f} s"
        au = 100 * job.au(ends, 1, EPOCHS - 1)
        rows.at_least(f"AU of epochs 2-5 at cache ratio {ratio}, {how}", 100 * bound, au, 0.98, note)
        job.judge(rows, f"cache ratio {ratio}, {how}")
        steady = sum(shares[1:EPOCHS]) / (EPOCHS - 1)
        # Far below, memory would have paid for a part of the disks.
        rows.within(f"store bytes of a steady epoch at cache ratio {ratio}, {how}", 1 - ratio, steady, 0.98 * (1 - ratio), 1.005 * (1 - ratio))
        return au


def needed(rows):
    reached = {ratio: measure(rows, ratio) for ratio in NEEDED}
    enough = [ratio for ratio, au in reached.items() if au >= 93.1]
    note = ", ".join(f"AU {au:.1f} at {ratio}" for ratio, au in reached.items())
    rows.add("cache ratio at which AU reaches 93.1 %", 0.481, min(enough, default=1), "<= 0.5", bool(enough), f"the least of those measured: {note}")


PARTS = {f"{100 * ratio:.0f}": partial(measure, ratio=ratio) for ratio in [0, 0.25, 0.45]}
PARTS |= {"needed": needed, "52": partial(measure, ratio=0.52), "52-undeclared": partial(measure, ratio=0.52, declared=False)}
