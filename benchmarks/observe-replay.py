#!/usr/bin/env python3
"""Three programs that load as training jobs do, alone, observed by `stoker observe`, and replayed by `stoker bench train` on
the same folder from the files that were written: samples per second of the replay beside those of the program alone.

    python3 benchmarks/observe-replay.py STOKER SCRATCH ROUNDS RAW.json [DEVICE BYTES-PER-SECOND]

As root. SCRATCH: an empty folder for the set (44 MB). With DEVICE, such as 254:0, which SCRATCH lies on, all run in a control group
(version 1, `blkio`) that reads so many bytes a second of it, over one epoch with emptied caches. Prints each run, then medians.
"""
import glob, json, multiprocessing, os, queue, random, shutil, statistics, subprocess, sys, threading, time, tomllib
from concurrent.futures import ThreadPoolExecutor

BATCH, STEP, READERS, AHEAD, FILES, EPOCHS = 8, 0.04, 4, 3, 400, 2


def read(name):
    with open(name, "rb") as file:
        return len(file.read())


def read_all(names):
    return sum(map(read, names))


def shared(batches):
    """Threads that share a batch; nothing is read during a step."""
    global pool
    pool = globals().get("pool") or ThreadPoolExecutor(READERS)
    for batch in batches:
        yield sum(pool.map(read, batch))


def worker(asked, answered):
    for number, batch in iter(asked.get, None):
        answered.put((number, read_all(batch)))


def owned(batches):
    """Processes that own a batch each, as workers of PyTorch's DataLoader: two on their way for each, taken in order."""
    global pool
    if "pool" not in globals():
        asked, answered = [multiprocessing.Queue() for _ in range(READERS)], multiprocessing.Queue()
        workers = [multiprocessing.Process(target=worker, args=(one, answered), daemon=True) for one in asked]
        for one in workers:
            one.start()
        pool = asked, answered
    asked, answered = pool
    for number, batch in enumerate(batches[:2 * READERS]):
        asked[number % READERS].put((number, batch))
    ready = {}
    for number in range(len(batches)):
        while number not in ready:
            other, size = answered.get()
            ready[other] = size
        later = number + 2 * READERS
        if later < len(batches):
            asked[later % READERS].put((later, batches[later]))
        yield ready.pop(number)


def ahead(batches):
    """One thread that reads on while a step is made, until AHEAD batches wait."""
    waiting = queue.Queue(AHEAD)

    def fill():
        for batch in batches:
            waiting.put(read_all(batch))

    threading.Thread(target=fill, daemon=True).start()
    for _ in batches:
        yield waiting.get()


PROGRAMS = {"shared": shared, "owned": owned, "ahead": ahead}


def train(program, folder, epochs):
    """A training loop. Says its rate over whole epochs."""
    names, seconds, samples = sorted(glob.glob(f"{folder}/*.jpg")), 0.0, 0
    for epoch in range(epochs):
        random.Random(epoch).shuffle(names)
        batches = [names[at:at + BATCH] for at in range(0, len(names), BATCH)]
        began = time.monotonic()
        for _ in PROGRAMS[program](batches):
            time.sleep(STEP)
        seconds += time.monotonic() - began
        samples += len(names)
    print(json.dumps({"samples_per_second": samples / seconds}), flush=True)


def said(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, 3, 5):
        sys.exit(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Folder:
    """The set, in the page cache or on a disk that is throttled."""

    def __init__(self, stoker, scratch, limit):
        self.stoker, self.scratch, self.limit, self.data = stoker, scratch, limit, f"{scratch}/data"
        self.group = f"/sys/fs/cgroup/blkio/observe-replay-{os.getpid()}"

    def __enter__(self):
        os.makedirs(self.data)
        for number in range(FILES):
            with open(f"{self.data}/{number:05}.jpg", "wb") as file:
                file.write(random.Random(number).randbytes(100_000 + 50 * number))
        os.sync()
        if self.limit:
            os.makedirs(self.group)
            with open(f"{self.group}/blkio.throttle.read_bps_device", "w") as file:
                file.write(" ".join(self.limit))
        return self

    def run(self, words):
        if not self.limit:
            return said(words)
        for name in glob.glob(f"{self.data}/*"):
            with open(name, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return said(["sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', self.group, *words])

    def __exit__(self, *_):
        shutil.rmtree(self.data)
        if self.limit:
            os.rmdir(self.group)


def one(folder, program):
    stoker, scratch = folder.stoker, folder.scratch
    workload, accelerator, report = (f"{scratch}/{name}" for name in ("workload.toml", "accelerator.toml", "report.json"))
    epochs, caches = (1, "first") if folder.limit else (EPOCHS, "keep")
    words = [sys.executable, __file__, "--program", program, folder.data, str(epochs)]
    alone = json.loads(folder.run(words))["samples_per_second"]
    observe = [stoker, "observe", "--workload", workload, "--accelerator", accelerator, folder.data, "--"]
    observed = json.loads(folder.run(observe + words))["samples_per_second"]
    folder.run([stoker, "bench", "train", "--workload", workload, "--accelerator", accelerator, "--accelerators", "1", "--target",
                folder.data, "--set", f"repetitions=1,caches={caches}", "--save", report])
    with open(report) as file:
        found = json.load(file)["epochs"]
    replayed = statistics.median(epoch["samples_per_second"] for epoch in found)
    with open(workload, "rb") as file:
        read = tomllib.load(file)["read"]
    with open(accelerator, "rb") as file:
        step = next(value for value in tomllib.load(file).values() if isinstance(value, dict))
    return {"program": program, "alone": alone, "observed": observed, "replayed": replayed, "ratio": replayed / alone,
            "load": os.getloadavg()[0], "read": read, "step": step}


def main(stoker, scratch, rounds, raw, *limit):
    runs = []
    with Folder(stoker, scratch, limit) as folder:
        for number in range(int(rounds)):
            for program in PROGRAMS:
                found = one(folder, program)
                runs.append({"round": number, "limit": limit} | found)
                read, step = found["read"], found["step"]
                print(f"{number} {program}: alone {found['alone']:.1f} samples/s, observed {found['observed']:.1f}, replayed "
                      f"{found['replayed']:.1f}: {found['ratio']:.3f}; batch {read['batch']}, threads {read['threads']}, ahead "
                      f"{read['prefetch_batches']}, {read['order']}, step {1e3 * step['step_seconds']:.1f} ms", flush=True)
    for program in PROGRAMS:
        for beside in ("alone", "observed"):
            ratios = [run["replayed"] / run[beside] for run in runs if run["program"] == program]
            print(f"{program}, replayed / {beside}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    with open(raw, "w") as file:
        json.dump(runs, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1] == "--program":
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(*sys.argv[1:])
