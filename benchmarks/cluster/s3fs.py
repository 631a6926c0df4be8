"""Four nodes that read an image folder of a store 20 ms away, with eight readers each: through Stoker, and through s3fs on each."""

import os
import random
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from bed import BUCKET, Bed, wait_for
from rows import Timer
from store import read

FILES, BYTES, NODES, READERS, EPOCHS = 4_000, 100_000, 4, 8, 3


def dealt(number):
    return random.Random(number).sample(range(FILES), FILES)


def epochs(bed, declared=False):
    """Images a second of each epoch. What is declared is said in the time of the first."""
    for node in range(NODES):
        os.listdir(bed.at(node))
    rates = []
    for epoch in range(EPOCHS):
        order = dealt(epoch)
        shares = [(reader % NODES, order[reader :: NODES * READERS]) for reader in range(NODES * READERS)]
        with Timer() as timer, ThreadPoolExecutor(len(shares)) as pool:
            for node in range(NODES) if declared and epoch == 0 else []:
                bed.hint(node, [file for number in range(EPOCHS) for file in dealt(number)[node::NODES]])
            list(pool.map(lambda share: [read(bed, share[0], number) for number in share[1]], shares))
        rates.append(FILES / timer.seconds)
    return rates


def mount_s3fs(bed, node):
    at, cache = bed.at(node), bed.scratch / f"cache{node}"
    at.mkdir()
    cache.mkdir()
    words = ["s3fs", BUCKET, at, "-f"]
    for option in [f"url=http://{bed.store_at}", "use_path_request_style", "public_bucket=1", f"use_cache={cache}", "ro"]:
        words += ["-o", option]
    server = subprocess.Popen(words, env=bed.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: os.path.ismount(at), "s3fs is mounted")
    return server


def run(rows):
    if not shutil.which("s3fs"):
        rows.add("images a second of 4 nodes in the first epoch, times s3fs on each", 1, 0, ">= 9", False, "there is no s3fs here")
        return
    rates = {}
    for name in ["s3fs", "stoker", "stoker, order declared"]:
        with Bed(FILES, BYTES, latency="20ms") as bed:
            if name != "s3fs":
                bed.mount(NODES, bed.total, fill="auto")
                rates[name] = epochs(bed, "declared" in name)
                continue
            servers = [mount_s3fs(bed, node) for node in range(NODES)]
            rates[name] = epochs(bed)
            for node, server in enumerate(servers):
                subprocess.run(["umount", bed.at(node)], check=True)
                server.wait()
    told = {name: [round(rate) for rate in each] for name, each in rates.items()}
    for name in ["stoker", "stoker, order declared"]:
        times = rates[name][0] / rates["s3fs"][0]
        measure = f"images a second of 4 nodes in the first epoch, times s3fs on each: {name}"
        rows.add(measure, 1, times, ">= 9", times >= 9, f"images/s by epoch {told}")
