"""Images a second and processor time an image of readers in Python, with no step between batches or one (`--step`), which gives
their utilisation: `open().read()` of the local disk, Stoker without a mount (cold and warm), obstore and s3torchconnector where they are installed.

    python3 benchmarks/python/readers.py target/release/stoker --files 4000 --rounds 3 > raw.json

All read the same files of one `stoker emulate` on this machine, in one shuffled order an epoch that is dealt to so many
processes. A round is each reader once, in an order that turns; the processor time of Stoker's node is counted with its readers'.

Only Stoker's cold row writes files and fills memory, so two things that have nothing to do with it are its alone to pay:

- ext4 without a journal gives an inode that was freed to nobody for six minutes, and looks past all of them at each new file
  (`recently_deleted` in a profile). Each round has a cache folder of its own and none is removed before the end; name a `--folder`
  on a new file system, or one with a journal, if another run is not six minutes past.
- A virtual machine may give free memory back to its host ("Free page reporting enabled" in dmesg) and pay many times as much for
  the first touch of it afterwards. `--fill` reads a file without blocks before each cold row of each reader until little memory is
  free, as on a machine that has run for a day, and then the bucket's files: what a row takes then was in use a moment ago.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))

import stoker  # noqa: E402

BATCH = 64
#: What each reader reads before its time begins, and no epoch does.
FIRST = "first.jpg"
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid):
    """Seconds of processor that a process has had."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Local:
    def __init__(self, bed):
        self.folder = bed["folder"]

    def read(self, names):
        out = []
        for name in names:
            with open(os.path.join(self.folder, name), "rb") as file:
                out.append(file.read())
        return out


class Stoker:
    def __init__(self, bed):
        self.data = stoker.open("s3://bucket", cache=bed["cache"], **bed["reach"])

    def read(self, names):
        return self.data.read_many(names)


class Obstore:
    """A batch at a time as well, all of it in flight."""

    def __init__(self, bed):
        import obstore
        from obstore.store import S3Store

        self.get = obstore.get_async
        self.loop = asyncio.new_event_loop()
        self.store = S3Store(
            "bucket",
            endpoint=bed["reach"]["endpoint"],
            region="us-east-1",
            skip_signature=True,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def read(self, names):
        async def one(name):
            return bytes(await (await self.get(self.store, name)).bytes_async())

        async def all_of_them():
            return await asyncio.gather(*(one(name) for name in names))

        return self.loop.run_until_complete(all_of_them())


class Connector:
    """Amazon's, one after the other, as its data sets read."""

    def __init__(self, bed):
        os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
        from s3torchconnector import S3ClientConfig
        from s3torchconnector._s3client import S3Client

        config = S3ClientConfig(force_path_style=True)
        self.client = S3Client("us-east-1", endpoint=bed["reach"]["endpoint"], s3client_config=config)

    def read(self, names):
        return [self.client.get_object("bucket", name).read() for name in names]


def reader(kind, bed, names, step, ready, go, out):
    client = kind(bed)
    client.read([FIRST])
    ready.release()
    go.wait()
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    got = 0
    for at in range(0, len(names), BATCH):
        # The batch before is held until the next one is there, as loaders hold it.
        batch = client.read(names[at : at + BATCH])
        got += sum(map(len, batch))
        if step:
            time.sleep(step)
    ended = time.monotonic()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    out.put((began, ended, cpu, got, -(-len(names) // BATCH) * step / (ended - began)))


def free_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemFree"))


def fill(folder, left=512 << 20):
    """Leave as little memory free as on a machine that has run for a day: all else holds a file that is in nobody's way."""
    name, piece = os.path.join(folder, "read-before"), bytearray(1 << 20)
    with open(name, "wb") as file:
        file.truncate(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with open(name, "rb", buffering=0) as file:
        while free_bytes() > left and file.readinto(piece):
            pass
    # In a group of memory control it ends at the group's limit: what is taken then is given up by the same group.
    print("filled: %d MiB of memory are free" % (free_bytes() >> 20), file=sys.stderr)


def shuffled(names, seed):
    order = list(names)
    random.Random(seed).shuffle(order)
    return order


def by_batches(order, processes):
    """The order in which an epoch that is dealt to readers is read, each of them a batch at a time."""
    parts = [order[number::processes] for number in range(processes)]
    return [name for at in range(0, len(parts[0]), BATCH) for part in parts for name in part[at : at + BATCH]]


def epoch(kind, bed, names, processes, node=None, step=0, hint=lambda: None):
    order = shuffled(names, len(names))
    context = multiprocessing.get_context("fork")
    ready, go, out = context.Semaphore(0), context.Event(), context.Queue()
    parts = [order[number::processes] for number in range(processes)]
    workers = [context.Process(target=reader, args=(kind, bed, part, step, ready, go, out)) for part in parts]
    [worker.start() for worker in workers]
    for _ in workers:
        while not ready.acquire(timeout=1):
            if any(worker.exitcode not in (None, 0) for worker in workers):
                raise SystemExit("a reader failed: " + kind.__name__)
    pids = [pid for pid in [node() if node else None] if pid]
    before = [cpu_of(pid) for pid in pids]
    at_server = cpu_of(bed["server"])
    hint()
    go.set()
    found = [out.get(timeout=600) for _ in workers]
    [worker.join() for worker in workers]
    of_node = sum(cpu_of(pid) - was for pid, was in zip(pids, before))
    begins, ends, cpus, lengths, busy = zip(*found)
    seconds, of_readers = max(ends) - min(begins), sum(cpus)
    return {
        "images": len(names),
        "bytes": sum(lengths),
        "seconds": seconds,
        "images_per_second": len(names) / seconds,
        "utilisation": sum(busy) / processes if step else None,
        "cpu_us_per_image": (of_readers + of_node) / len(names) * 1e6,
        "node_cpu_us_per_image": of_node / len(names) * 1e6,
        "server_cpu_us_per_image": (cpu_of(bed["server"]) - at_server) / len(names) * 1e6,
    }


def main():
    words = argparse.ArgumentParser()
    words.add_argument("program")
    words.add_argument("--files", type=int, default=4000)
    words.add_argument("--size", type=int, default=100_000)
    words.add_argument("--processes", type=int, default=8)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--latency", default="", help="of the store, as 20ms")
    words.add_argument("--step", type=float, default=0, help="seconds that a reader does something else after each batch")
    words.add_argument("--known", action="store_true", help="say the order to Stoker as its cold epoch begins")
    words.add_argument("--folder", default=None)
    words.add_argument("--without", action="append", default=[], help="a reader that is left out")
    words.add_argument("--fill", action="store_true", help="leave little memory free before each row")
    asked = words.parse_args()
    scratch = tempfile.mkdtemp(prefix="stoker-readers-", dir=asked.folder)
    os.environ.update(STOKER_BIN=os.path.abspath(asked.program), STOKER_RUNTIME_DIR=scratch + "/run", HOME=scratch)
    for name in ("STOKER_SOCKET", "AWS_PROFILE"):
        os.environ.pop(name, None)
    folder = os.path.join(scratch, "bucket")
    names = ["%02d/%06d.jpg" % (number % 40, number) for number in range(asked.files)]
    chance = random.Random(1)
    for name in [*names, FIRST]:
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "wb") as file:
            file.write(chance.randbytes(asked.size))
        os.utime(os.path.join(folder, name), (1_600_000_000, 1_600_000_000))
    more = ["--latency", asked.latency] if asked.latency else []
    server = subprocess.Popen(
        [os.path.abspath(asked.program), "emulate", folder, "--bucket", "bucket", *more], stdout=subprocess.PIPE, text=True
    )
    line = server.stdout.readline()
    while "http://" not in line:
        line = server.stdout.readline()
    endpoint = "http://" + line.split("http://", 1)[1].split()[0].rstrip("/").replace("/bucket", "")
    reach = {"endpoint": endpoint, "region": "us-east-1", "anonymous": True}
    bed = {"folder": folder, "reach": reach, "server": server.pid}
    kinds = [("open().read()", Local), ("stoker", Stoker)]
    for name, module, kind in (("obstore", "obstore", Obstore), ("s3torchconnector", "s3torchconnector", Connector)):
        if name in asked.without:
            continue
        try:
            __import__(module)
            kinds.append((name, kind))
        except ImportError:
            print("SKIPPED: %s is not installed" % name, file=sys.stderr)
    samples = []
    try:
        for number in range(asked.rounds):
            for name, kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
                for state in ("cold", "warm") if kind is Stoker else ("cold",):
                    bed["cache"] = "%s/cache-%d" % (scratch, number)
                    if asked.fill and state == "cold" and kind is not Local:
                        fill(scratch)
                        Local(bed).read(names)
                    held = stoker.open("s3://bucket", cache=bed["cache"], **reach) if kind is Stoker else None
                    node = (lambda: stoker.status(cache=bed["cache"])["pid"]) if kind is Stoker else None
                    said = by_batches(shuffled(names, len(names)), asked.processes)
                    is_said = held is not None and state == "cold" and asked.known
                    hint = (lambda: held.hint(said, "epoch")) if is_said else lambda: None
                    found = epoch(kind, bed, names, asked.processes, node, asked.step, hint)
                    samples.append({"round": number, "reader": name, "state": state if kind is not Local else "warm", **found})
                    print(json.dumps(samples[-1]), file=sys.stderr, flush=True)
                    if held is not None and state == "warm":
                        held.close()
                        pid = stoker.status(cache=bed["cache"])["pid"]
                        os.kill(pid, 15)
                        while os.path.exists("/proc/%d" % pid):
                            [one.poll() for one in stoker._place._started]
                            time.sleep(0.05)
                    assert samples[-1]["bytes"] == asked.files * asked.size
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps({"asked": vars(asked), "samples": samples}, indent=1))
    for name, state in sorted({(one["reader"], one["state"]) for one in samples}):
        of_it = [one for one in samples if (one["reader"], one["state"]) == (name, state)]
        rate, cpu = (statistics.median(one[key] for one in of_it) for key in ("images_per_second", "cpu_us_per_image"))
        busy = "".join(" utilisation %.3f" % statistics.median(one["utilisation"] for one in of_it) for _ in range(bool(asked.step)))
        print("%-18s %-5s %9.0f images/s %7.1f us of processor an image%s" % (name, state, rate, cpu, busy), file=sys.stderr)


if __name__ == "__main__":
    main()
