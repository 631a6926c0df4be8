"""The loop of a training job around a loader that somebody else made: steps, a barrier, and what each step waited for.

It loads nothing itself: `torch_loader`, `tensorflow_loader` and `dali_loader` do, each with its library's own machinery.
The job comes as one line of JSON on standard input, and an empty line starts each epoch. Each accelerator is a
process, and gives one line of JSON an epoch on standard output, which `crates/bench/src/loader.rs` reads.

Invariants: a step ends at a deadline that was fixed when its batch was there, so that a late wake-up is never
counted as computing; when one process ends, all end.
"""

import ctypes
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import struct
import sys
import threading
import time

# Until this long before a deadline a step sleeps; then it asks the clock.
SPIN_SECONDS = 200e-6
# Between two lines that say how far it is.
PROGRESS_SECONDS = 0.5
# One accelerator may be this much later than the others before the run is given up.
BARRIER_SECONDS_MAX = 1800
# A process that was killed has ended after this, unless it waits for storage that hangs.
KILLED_SECONDS_MAX = 2

ENDINGS = {
    "jpeg": (".jpg", ".jpeg"),
    "npz": (".npz",),
    "npy": (".npy",),
    "tfrecord": (".tfrecord", ".tfrecords"),
    "parquet": (".parquet",),
    "tar": (".tar",),
    "raw": (),
}


class Refusal(Exception):
    """What can't be run: what, on what, what to try."""

    def __init__(self, what, on, cure):
        super().__init__(what)
        self.what, self.on, self.cure = what, on, cure


def belongs(kind, name):
    """TFRecord shards are often named without an ending: `train-00000-of-01024`."""
    file = name.rsplit("/", 1)[-1]
    if file.startswith("."):
        return False
    endings = ENDINGS[kind]
    is_shard = kind == "tfrecord" and ("-of-" in file or ".tfrecord" in file)
    return not endings or file.lower().endswith(endings) or is_shard


def files_of(job):
    """Names and sizes of the set, in the order of their names below the folder."""
    folder, found = job["folder"], []
    if folder is None:
        size = int(job["sample_bytes"] * job["samples_per_file"])
        return [(f"{number:08}", size) for number in range(job["files"])]
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(place, name)
            below = os.path.relpath(path, folder)
            if belongs(job["format"], below):
                size = os.stat(path).st_size
                if size > 0:
                    found.append((below, size))
    if not found:
        raise Refusal(
            f"there is no file of the format {job['format']}",
            folder,
            "make a set with `stoker bench data`, or name another folder or workload",
        )
    return sorted(found, key=lambda file: file[0].encode())


def records_of(path, size):
    """Where the records of a TFRecord file lie: length (8 bytes), its checksum (4), the record, its checksum (4)."""
    spans, at = [], 0
    with open(path, "rb", buffering=1 << 16) as file:
        while at < size:
            file.seek(at)
            head = file.read(12)
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else size
            if at + 16 + length > size:
                raise Refusal(f"a record at byte {at} reaches beyond the end", path, "make the set anew")
            spans.append((at + 12, length))
            at += 16 + length
    return spans


def samples_of(job):
    """Each sample as (path, offset, bytes); the file of a sample without a folder has no path."""
    samples = []
    for name, size in files_of(job):
        path = None if job["folder"] is None else os.path.join(job["folder"], name)
        if job["format"] == "tfrecord" and path is not None:
            samples.extend((path, at, length) for at, length in records_of(path, size))
        else:
            count = job["samples_per_file"]
            each = max(1, size // count)
            samples.extend((path, number * each, each) for number in range(count))
    return samples


def read(sample):
    """The bytes of a sample, asked of the file system with one open and as many reads as it takes."""
    path, at, length = sample
    if path is None:
        return b""
    handle = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while length > 0:
            part = os.pread(handle, length, at)
            if not part:
                raise Refusal("a file ended before its sample did", path, "make the set anew; nothing may change it")
            parts.append(part)
            at, length = at + len(part), length - len(part)
    finally:
        os.close(handle)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Account:
    """What a batch took where it was made. Monotonic time is the same for all processes of a machine."""

    def __init__(self):
        self.read = self.decode = 0.0
        self.samples = self.bytes = 0

    def figures(self):
        return (self.samples, self.bytes, self.read, self.decode, time.monotonic())


def steps_of(job, accelerator_samples):
    """Full batches of an epoch."""
    steps = accelerator_samples // job["batch"]
    if job["steps_max"] is not None:
        steps = min(steps, job["steps_max"])
    if steps < 2:
        raise Refusal(
            f"{accelerator_samples} samples for each accelerator make {steps} steps of {job['batch']}, and the first counts not",
            job["folder"] or "null:",
            "fewer accelerators, or a larger set",
        )
    return steps


def fewest_files(job, files):
    """Files of the accelerator that has the fewest, where each has every N-th. Whoever has more leaves them: one that began
    its own again would find in memory what it has read."""
    return len(files) // job["replicas"]


def turns_of(job, files, workers):
    """Whose batch each step of an epoch is, as `DataLoader` asks its workers in turn, past those that have no more.

    Every worker has every N-th of an accelerator's `files` and drops what fills no batch.
    """
    own = [len(range(first, files, workers)) * job["samples_per_file"] // job["batch"] for first in range(workers)]
    steps = steps_of(job, sum(own) * job["batch"])
    turns = (worker for turn in range(max(own)) for worker in range(workers) if turn < own[worker])
    return list(itertools.islice(turns, steps))


def await_deadline(deadline):
    left = deadline - time.monotonic()
    if left > SPIN_SECONDS:
        time.sleep(left - SPIN_SECONDS)
    while time.monotonic() < deadline:
        pass


def causes(began, got, figures):
    """A wait, split: what fell to reading and decoding while the batch was made; after that it was the loader's own."""
    samples, size, reading, decoding, finished = figures
    making = max(0.0, min(finished, got) - began)
    worked = reading + decoding
    store = making * reading / worked if worked > 0 else 0.0
    return store, (making - store if worked > 0 else 0.0)


def end_with(parent):
    """Have the kernel end this process with the one that started it, however that ends: nobody else would."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (AttributeError, OSError):
        return
    # It may have ended before the kernel was asked.
    if os.getppid() != parent:
        os._exit(1)


class Meeting:
    """Where accelerators wait for each other: those of this process, and by word of one of them those of all ranks."""

    def __init__(self, job, barrier, speaker):
        """`speaker` says that all of this process are here, and returns when all ranks are; only one process has it."""
        self.barrier, self.speaker, self.among_ranks = barrier, speaker, job["replicas"] > job["accelerators"]

    def wait(self):
        self.barrier.wait(BARRIER_SECONDS_MAX)
        if self.among_ranks:
            if self.speaker is not None:
                self.speaker()
            self.barrier.wait(BARRIER_SECONDS_MAX)


def epoch(job, number, batches, steps, meeting, tell):
    """One epoch of one accelerator."""
    rows, samples, size = [], 0, 0
    meeting.wait()
    zero = told = time.monotonic()
    batches = iter(batches)
    for step in range(steps):
        began = time.monotonic()
        figures = next(batches, None)
        got = time.monotonic()
        if figures is None:
            raise Refusal(f"the loader gave {step} batches of {steps}", job["folder"] or "null:", "a larger set")
        await_deadline(got + job["step_seconds"])
        computed = time.monotonic()
        meeting.wait()
        ended = time.monotonic()
        whole = max(0.0, min(figures[-1], got) - zero)
        rows.append((began - zero, got - began, computed - got, ended - computed, *causes(began, got, figures), whole))
        samples, size = samples + figures[0], size + figures[1]
        if ended - told > PROGRESS_SECONDS:
            told = ended
            tell({"progress": {"epoch": number, "step": step + 1, "steps": steps}})
    return {"epoch": number, "seconds": time.monotonic() - zero, "samples": samples, "bytes": size, "steps": rows}


def accelerate(job, own, make, barrier, orders, results, parent):
    """The life of one accelerator's process."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        loader = make(job, job["first_accelerator"] + own)
        # What it read to find its samples is forgotten before an epoch is called cold.
        results.send({"built": own})

        def speak():
            results.send({"meet": True})
            orders.recv()

        meeting = Meeting(job, barrier, speak if own == 0 else None)
        while orders.poll(None):
            number = orders.recv()
            if number is None:
                break
            tell = results.send if own == 0 else lambda line: None
            line = epoch(job, number, loader.batches(number - 1), loader.steps, meeting, tell)
            results.send({**line, "accelerator": own})
        loader.close()
        return
    except (threading.BrokenBarrierError, EOFError, BrokenPipeError):
        pass
    except Refusal as refusal:
        results.send({"refusal": {"what": refusal.what, "on": refusal.on, "try": refusal.cure}})
    except Exception as error:
        on = f"accelerator {own}"
        what, cure = f"the loader failed: {type(error).__name__}: {error}", "see what the library means by that"
        results.send({"refusal": {"what": what, "on": on, "try": cure}})
    # The others hear of it from whoever started them: a barrier that one died at can't be broken, it waits for the dead.
    os._exit(1)


def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def lines(ends, waiting):
    """What accelerators say, as it comes, while any are waited for; until one of them or the command ends."""
    while waiting:
        found = multiprocessing.connection.wait([*waiting, *ends])
        told = [one for one in found if one in waiting]
        if not told:
            return
        for one in told:
            try:
                yield one, one.recv()
            except EOFError:
                return


def conduct(job, children, results):
    """Pass lines on until every accelerator has ended its epoch; then wait for the word to begin the next."""
    # An accelerator's process that ends, or the end of standard input, is the end of all.
    ends = [*(child.sentinel for child, _ in children), sys.stdin.fileno()]
    building = set(results)
    for one, line in lines(ends, building):
        if "built" not in line:
            say(line)
            return 1
        building.discard(one)
    if building:
        return 1
    for number in range(1, job["epochs"] + 1):
        if number > 1 and job["pause_seconds"] and multiprocessing.connection.wait(ends, job["pause_seconds"]):
            return 1
        say({"ready": number})
        if not sys.stdin.readline():
            return 1
        for _, orders in children:
            orders.send(number)
        waiting = set(results)
        for one, line in lines(ends, waiting):
            say(line)
            if "refusal" in line or "meet" in line and not sys.stdin.readline():
                return 1
            if "meet" in line:
                children[0][1].send(True)
            if "epoch" in line:
                waiting.discard(one)
        if waiting:
            return 1
    return 0


def main(make, missing):
    """`make(job, accelerator)` opens the loader of one accelerator: `steps`, `batches(epoch)`, `close()`."""
    # An interrupt reaches all processes of a terminal; who heard it for all of them closes standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = json.loads(sys.stdin.readline())
    if missing is not None:
        say({"missing": str(missing)})
        sys.exit(1)
    # Each accelerator starts afresh: a library that has started threads must not be forked.
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(job["accelerators"])
    children, results = [], []
    for own in range(job["accelerators"]):
        take_orders, orders = context.Pipe(False)
        result, give_result = context.Pipe(False)
        child = context.Process(target=accelerate, args=(job, own, make, barrier, take_orders, give_result, os.getpid()))
        child.start()
        take_orders.close()
        give_result.close()
        children.append((child, orders))
        results.append(result)
    try:
        code = conduct(job, children, results)
    except BrokenPipeError:
        # The command was killed. Nobody would end the accelerators' processes but this one.
        code = 1
    if code != 0:
        # One that waits at the barrier, or for storage that hangs, hears nothing else.
        for child, _ in children:
            child.kill()
        for child, _ in children:
            child.join(KILLED_SECONDS_MAX)
        os._exit(code)
    for _, orders in children:
        orders.send(None)
    for child, _ in children:
        child.join()
