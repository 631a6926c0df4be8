"""Sets as two workloads have them: CosmoFlow's files on a store that gives .625 of the demand, and BERT's packed shards."""

import os
import threading
import zlib

from bed import Bed
from job import Job

STORE, NODES = 64e6, 4

# A record of BERT with its frame in a TFRecord file, and how TensorFlow reads such files.
RECORD, TRANSFER = 2_500 + 16, 262_144
# What 1,000 V100 ask for: 48 records in 0.968 s each. Eight readers stand for 125 each, and take 480 records a step.
BERT_DEMAND = 1_000 * 48 * RECORD / 0.968
READERS, BATCH = 8, 480 * RECORD


def cosmoflow(rows):
    size, demand, epochs = 2_828_486, STORE / 0.625, 2
    with Bed(800, size, bandwidth="64MB/s") as bed:
        bed.mount(NODES, int(1.05 * bed.total / NODES), memory="256MiB")
        job = Job(bed, list(range(NODES)), NODES * size / demand, epochs)
        ends = job.run()
        job.judge(rows, "CosmoFlow")
        rows.at_least("AU of CosmoFlow's cold epoch, store .625 of demand", 62.5, 100 * job.au(ends, 0, 0), 0.98)
        rows.at_least("AU of its warm epoch", 100, 100 * job.au(ends, 1, epochs - 1), 0.98)


class Records(Job):
    """Readers that each go through a shard from its start, by pieces, and take a step of so many records."""

    def __init__(self, bed, nodes, batches, epochs):
        super().__init__(bed, nodes, BATCH * READERS / BERT_DEMAND, epochs, workers=1, ahead=4)
        self.batches, self.steps, self.open = batches, batches, threading.local()
        self.pieces = [pieces(bed.scratch / "data" / f"{number:05}") for number in range(bed.files)]

    def samples(self, rank):
        for order in self.orders:
            yield from ((order[rank], batch) for batch in range(self.batches))

    def compare(self, node, sample):
        shard, batch = sample
        if batch == 0:
            # The one before is closed thereby, and this one with its thread.
            self.open.at, self.open.file = 0, open(self.bed.at(node) / f"{shard:05}", "rb", buffering=0)
        is_right, began = True, self.open.at
        while self.open.at < (batch + 1) * BATCH:
            piece = os.pread(self.open.file.fileno(), TRANSFER, self.open.at)
            is_right &= zlib.crc32(piece) == self.pieces[shard][self.open.at // TRANSFER]
            self.open.at += TRANSFER
        os.posix_fadvise(self.open.file.fileno(), began, self.open.at - began, os.POSIX_FADV_DONTNEED)
        return is_right


def pieces(path):
    with open(path, "rb") as file:
        return [zlib.crc32(piece) for piece in iter(lambda: file.read(TRANSFER), b"")]


def bert(rows):
    # Shards of 280 MB, which are cut into stripes of several owners.
    batches, epochs = 232, 2
    with Bed(READERS, batches * BATCH, latency="20ms") as bed:
        bed.mount(NODES, int(1.05 * bed.total / NODES), memory="256MiB")
        job = Records(bed, [reader % NODES for reader in range(READERS)], batches, epochs)
        ends = job.run()
        job.judge(rows, "BERT's shards")
        # A loader that has nothing left reads an epoch more.
        rows.within("store bytes of BERT's shards in all epochs, of the set", 1, bed.sent() / bed.total, 1, 1.005)
        note = f"{BERT_DEMAND / 1e6:.0f} MB/s, slowest read {job.longest():.2f} s"
        rows.at_least("AU of what 1,000 V100 with BERT ask for, shards of 280 MB, cold from a store 20 ms away", 100, 100 * job.au(ends, 0, 0), 0.98, note)
        rows.at_least("AU of the epoch after it", 100, 100 * job.au(ends, 1, 1), 0.98)


def run(rows):
    cosmoflow(rows)
    bert(rows)
