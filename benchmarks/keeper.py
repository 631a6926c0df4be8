"""What readers notice when the process that serves their mount is killed, runs out of memory, is restarted or upgraded, or
when whoever holds the mount is killed: `python3 benchmarks/keeper.py OUT` (root, 40 minutes; TIMES=20 of each by default,
RESTARTS=1000 in a row; names of parts after OUT for some of them). Writes rows.json, setup.md and summary.md into OUT.

Eight processes read whole files in a random order and compare each byte; two more read complete files that stay open, at a pace that
leaves them room on two cores (else they would be faster whenever the eight wait), and note how much in each tenth of a second and how
long the longest read took. Before each of these reads the mount's own pages of it are dropped, so that only a kernel that passes it through has it where
no process is there; `dead` is a kill after which whoever would start another process is kept stopped for two seconds. The store is
`stoker emulate` on the same machine, which counts what it gave.
"""

import ctypes
import glob
import json
import multiprocessing
import os
import platform
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

STOKER = Path(__file__).parent.parent / "target/release/stoker"
TIMES, RESTARTS = int(os.environ.get("TIMES", 20)), int(os.environ.get("RESTARTS", 1000))
# The other build of `upgrade`: an earlier one, say; by default this one without its symbols.
OTHER = os.environ.get("OTHER")
SIZES = [1_000, 100_000, 900_000, 3_000_000, 20_000_000]
FILES, OPEN_FILES, OPEN_BYTES, READERS = 100, 4, 16 << 20, 8
# Seconds between two reads of a stream.
PACE = 0.004
# Three ends within thirty seconds are too many for the keeper.
APART = {"kill": 16, "oom": 16, "dead": 16, "restart": 3, "upgrade": 3, "keeper": 2}
# Seconds without any process in `dead`.
DEAD = 2
GROUP = Path("/sys/fs/cgroup/memory/stoker-keeper-bench")
LINES_AT, LINE = 4096, struct.Struct("QII")


def read_all(at, originals, seed, stop, out):
    """Whole files in a random order until it is told to stop."""
    chance, files, errors, wrong, longest, slowest, given = random.Random(seed), 0, [], 0, 0.0, 0.0, 0
    while not stop.is_set():
        name = chance.choice(originals)
        began = time.monotonic()
        try:
            with open(f"{at}/{name}", "rb", buffering=0) as file:
                longest = max(longest, time.monotonic() - began)
                parts = []
                while not parts or parts[-1]:
                    began = time.monotonic()
                    parts.append(file.read(1 << 20))
                    slowest = max(slowest, time.monotonic() - began)
                read = b"".join(parts)
        except OSError as error:
            errors.append(f"{name}: {error}")
            time.sleep(0.1)
            continue
        given += len(read)
        files, wrong = files + 1, wrong + (read != Path(f"{at}/../bucket/{name}").read_bytes())
    out.put((files, errors, wrong, longest, slowest, given))


def read_open(at, stop, out):
    """Complete files that stay open: bytes in each tenth of a second."""
    files = [os.open(f"{at}/open{number}", os.O_RDONLY) for number in range(OPEN_FILES)]
    right = [Path(f"{at}/../bucket/open{number}").read_bytes() for number in range(OPEN_FILES)]
    tenths, errors, position, longest = {}, [], 0, 0.0
    while not stop.is_set():
        time.sleep(PACE)
        began = time.monotonic()
        which, offset = position % OPEN_FILES, position // OPEN_FILES * (1 << 18) % OPEN_BYTES
        try:
            # Pages of the mount's, not those of the file in the cache that the kernel reads in its place.
            os.posix_fadvise(files[which], 0, 0, os.POSIX_FADV_DONTNEED)
            read = os.pread(files[which], 1 << 18, offset)
        except OSError as error:
            errors.append(str(error))
            continue
        longest = max(longest, time.monotonic() - began)
        if read != right[which][offset : offset + (1 << 18)]:
            errors.append(f"wrong bytes of open{which} at {offset}")
        position += 1
        tenth = int(time.monotonic() * 10)
        tenths[tenth] = tenths.get(tenth, 0) + len(read)
    out.put((tenths, errors, longest))


class Bed:
    def __init__(self, scratch, is_warm, more=()):
        self.scratch, self.at = Path(scratch), f"{scratch}/mnt"
        for name in ["bucket", "mnt", "run"]:
            (self.scratch / name).mkdir(mode=0o700)
        self.names = [f"file{number}" for number in range(FILES)]
        chance = random.Random(7)
        for number, name in enumerate(self.names):
            (self.scratch / "bucket" / name).write_bytes(chance.randbytes(SIZES[number % len(SIZES)] + number))
        for number in range(OPEN_FILES):
            (self.scratch / "bucket" / f"open{number}").write_bytes(chance.randbytes(OPEN_BYTES))
        self.environment = os.environ | {"STOKER_RUNTIME_DIR": str(self.scratch / "run"), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        words = [STOKER, "emulate", "--bucket", "set", self.scratch / "bucket", "--latency", "5ms", *more]
        self.store = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.store.stdout.readline().strip()
        cache = ["--cache-size", "2GB" if is_warm else "150MB", "--cache", self.scratch / "cache"]
        self.run("mount", "s3://set", self.at, "--detach", "--endpoint", self.endpoint, "--fill", "off", *cache)
        for number in range(OPEN_FILES):
            Path(f"{self.at}/open{number}").read_bytes()
        if is_warm:
            self.run("load", self.at)

    def run(self, *words, program=STOKER):
        done = subprocess.run([program, *words], env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def given(self):
        """Bytes of objects that the store gave so far."""
        with urllib.request.urlopen(f"{self.endpoint}/-/counters") as answer:
            return json.load(answer)["get"]["bytes_out"]

    def status(self):
        return json.loads(self.run("status", "--json").splitlines()[0])

    def close(self):
        self.run("umount", "--lazy", self.at)
        self.store.terminate()
        self.store.wait()

    def registered(self, pid):
        """Backing files that the kernel has registered, by closing them: only when nothing is open any more."""
        libc = ctypes.CDLL(None, use_errno=True)
        device = next(int(link.name) for link in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(link) == "/dev/fuse")
        process = os.pidfd_open(pid)
        ours = libc.syscall(438, process, device, 0)  # pidfd_getfd
        ledger = next(link for link in Path(f"/proc/{pid}/fd").iterdir() if "stoker-opens" in os.readlink(link))
        with open(ledger, "rb") as file:
            file.seek(24)
            (highest,) = struct.unpack("I", file.read(4))
        number = ctypes.c_uint32()
        found = 0
        for identity in range(1, highest + 200):
            number.value = identity
            found += libc.ioctl(ours, 0x4004E502, ctypes.byref(number)) == 0
        os.close(ours)
        os.close(process)
        return found

    def open_nodes(self, pid):
        """Nodes that are open by the ledger of a node."""
        ledger = next(link for link in Path(f"/proc/{pid}/fd").iterdir() if "stoker-opens" in os.readlink(link))
        with open(ledger, "rb") as file:
            file.seek(32)
            (lines,) = struct.unpack("I", file.read(4))
            file.seek(LINES_AT)
            entries = [LINE.unpack(file.read(LINE.size)) for _ in range(lines)]
        return sum(1 for node, way, opens in entries if node and way and opens)


def act(bed, part, turn):
    """End a process: the moment of that, and seconds until another one answers."""
    status = bed.status()
    pid, keeper = status["pid"], status["keeper"]["pid"]
    time.sleep(1)
    began = time.monotonic()
    if part == "kill":
        os.kill(pid, signal.SIGKILL)
    if part == "dead":
        os.kill(keeper, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        time.sleep(DEAD)
        os.kill(keeper, signal.SIGCONT)
    if part == "oom":
        GROUP.mkdir(exist_ok=True)
        (GROUP / "memory.limit_in_bytes").write_text("0")
        (GROUP / "cgroup.procs").write_text(str(pid))
    if part == "restart":
        bed.run("restart", bed.at)
    if part == "upgrade":
        other = Path(OTHER or bed.scratch / "stoker-next")
        if not other.exists():
            subprocess.run(["strip", "-o", other, STOKER], check=True)
        bed.run("restart", bed.at, program=other if turn % 2 == 0 else STOKER)
    if part == "keeper":
        os.kill(keeper, signal.SIGKILL)
    before, key = (keeper, lambda status: status["keeper"].get("pid")) if part == "keeper" else (pid, lambda status: status["pid"])
    while time.monotonic() - began < 30:
        try:
            now = key(bed.status())
            if now and now != before:
                return began, time.monotonic() - began
        except (RuntimeError, IndexError):
            pass
        time.sleep(0.02)
    raise RuntimeError(f"{part}: no other process is there")


def measure(rows, part, is_warm):
    how = "all kept" if is_warm else "a third kept"
    with tempfile.TemporaryDirectory(prefix="stoker-keeper-") as scratch:
        bed = Bed(scratch, is_warm, [] if is_warm else ["--bandwidth", "100MB/s"])
        stop, out, opened = multiprocessing.Event(), multiprocessing.Queue(), multiprocessing.Queue()
        readers = [multiprocessing.Process(target=read_all, args=(bed.at, bed.names, seed, stop, out)) for seed in range(READERS)]
        readers += [multiprocessing.Process(target=read_open, args=(bed.at, stop, opened)) for _ in range(2)]
        for reader in readers:
            reader.start()
        time.sleep(3)
        took, moments, given = [], [], bed.given()
        for turn in range(TIMES):
            moment, seconds = act(bed, part, turn)
            moments.append(moment)
            took.append(seconds)
            time.sleep(APART[part])
        given = bed.given() - given
        stop.set()
        read, streams = [out.get() for _ in range(READERS)], [opened.get() for _ in range(2)]
        for reader in readers:
            reader.join()
        status = bed.status()
        assert status["mounts"][0]["passthrough"] == "on" and status["mounts"][0]["opens_passed_through"] > 0, status["mounts"]
        bed.close()
    files, wrong, longest, slowest = sum(r[0] for r in read), sum(r[2] for r in read), max(r[3] for r in read), max(r[4] for r in read)
    errors = [error for r in read for error in r[1]] + [error for s in streams for error in s[1]]
    rates = {}
    for tenths, _, _ in streams:
        for tenth, count in tenths.items():
            rates[tenth] = rates.get(tenth, 0) + count
    usual = statistics.median(rates.values())
    # The second from each end on, as one figure: single tenths vary more than that by themselves.
    # In `dead` all but the tenths in which it begins and ends.
    tenths = range(1, DEAD * 10 - 1) if part == "dead" else range(10)
    after = [statistics.mean(rates.get(int(moment * 10) + tenth, 0) for tenth in tenths) for moment in moments]
    share, least = statistics.median(after) / usual, min(after) / usual
    name = f"{'upgrade to another build' if part == 'upgrade' and OTHER else part}, {how}"
    first = len(rows)
    when = f"in {DEAD} s without a process" if part == "dead" else "in the second from the end on"
    rows.append([f"errors and wrong bytes of {files} files, {name} {TIMES} times", "0", len(errors) + wrong, len(errors) + wrong == 0])
    rows.append([f"rate of complete open files {when}, their pages of the mount dropped, median of {TIMES}, {name}", ">= 0.9", round(share, 3), share >= 0.9])
    rows.append([f"the least of them, {name}", "told", round(least, 3), True])
    longest_open = max(stream[2] for stream in streams)
    rows.append([f"longest read of a complete open file, s, {name}", "<= 0.1", round(longest_open, 3), longest_open <= 0.1])
    most = 2 + (DEAD if part == "dead" else 0)
    rows.append([f"longest open, s, {name}", f"<= {most}", round(longest, 2), longest <= most])
    rows.append([f"longest read of what is not open yet, s, {name}", "told", round(slowest, 2), True])
    rows.append([f"until another process answers, s, median / longest, {name}", "told", f"{statistics.median(took):.2f} / {max(took):.2f}", True])
    rows.append([f"GB that the store gave / that readers of whole files got, {name}", "told", f"{given / 1e9:.1f} / {sum(r[5] for r in read) / 1e9:.1f}", True])
    if part == "keeper":
        rows.append([f"restarts of the node, {name}", "0", status["mounts"][0]["restarts"], status["mounts"][0]["restarts"] == 0])
    for row in rows[first:]:
        print(*row, sep=" | ", flush=True)
    for error in errors[:5]:
        print(error, file=sys.stderr)


def many(rows):
    """Restart after restart under load: what is left over."""
    with tempfile.TemporaryDirectory(prefix="stoker-keeper-") as scratch:
        bed = Bed(scratch, True)
        descriptors = lambda pid: len(os.listdir(f"/proc/{pid}/fd"))
        held = lambda: (status := bed.status(), descriptors(status["pid"]), descriptors(status["keeper"]["pid"]))[1:]
        bed.run("restart", bed.at)
        before, mounts = held(), Path("/proc/mounts").read_text().count("fuse.stoker")
        stop, out = multiprocessing.Event(), multiprocessing.Queue()
        readers = [multiprocessing.Process(target=read_all, args=(bed.at, bed.names, seed, stop, out)) for seed in range(READERS)]
        for reader in readers:
            reader.start()
        took = []
        for _ in range(RESTARTS):
            began = time.monotonic()
            bed.run("restart", bed.at)
            took.append(time.monotonic() - began)
        stop.set()
        read = [out.get() for _ in range(READERS)]
        for reader in readers:
            reader.join()
        time.sleep(1)
        # As before: nothing was read since, and the next process has closed what is kept and not open.
        bed.run("restart", bed.at)
        after = held()
        pid = bed.status()["pid"]
        left, ids = bed.open_nodes(pid), bed.registered(pid)
        bed.close()
        time.sleep(2)
        more = Path("/proc/mounts").read_text().count("fuse.stoker") - mounts + 1
        alive = sum(str(scratch) in Path(path).read_bytes().decode(errors="replace") for path in glob.glob("/proc/[0-9]*/cmdline") if os.path.exists(path))
    bad = sum(len(r[1]) + r[2] for r in read)
    rows.append([f"errors and wrong bytes of {sum(r[0] for r in read)} files over {RESTARTS} restarts in a row", "0", bad, bad == 0])
    rows.append([f"descriptors of node and keeper, before / after {RESTARTS} restarts", "<= 2 more", f"{before} / {after}", max(a - b for a, b in zip(after, before)) <= 2])
    rows.append(["nodes that count as open after all were closed, backing files registered, mounts, processes left over", "0 / 0 / 0 / 0", f"{left} / {ids} / {more} / {alive}", left + ids + more + alive == 0])
    rows.append(["seconds of a restart, median / longest", "told", f"{statistics.median(took):.2f} / {max(took):.2f}", True])
    for row in rows[-4:]:
        print(*row, sep=" | ", flush=True)


def setup():
    """What it was run on and by, one line a run."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (f"- {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC: `{' '.join(['TIMES=' + str(TIMES), 'benchmarks/keeper.py', *sys.argv[2:]])}` at {commit}"
            f"{', OTHER ' + OTHER if OTHER else ''}; {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, load {os.getloadavg()[0]:.1f} before. {READERS} readers of {FILES} files,"
            f" 2 of {OPEN_FILES} complete open files of {OPEN_BYTES >> 20} MiB, one read in {PACE * 1e3:.0f} ms. Kept: all, in 2 GB; or 150 MB of it, the store giving 100 MB/s at most.\n")


if __name__ == "__main__":
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with open(folder / "setup.md", "a") as file:
        file.write(setup())
    for part in APART:
        for is_warm in [True, False]:
            name = f"{part}.{'warm' if is_warm else 'cold'}"
            if not wanted or part in wanted or name in wanted:
                measure(rows, part, is_warm)
    if not wanted or "many" in wanted:
        many(rows)
    if GROUP.exists():
        GROUP.rmdir()
    written = folder / "rows.json"
    known = {row[0]: row for row in json.loads(written.read_text())} if written.exists() else {}
    known |= {row[0]: row for row in rows}
    written.write_text(json.dumps(list(known.values()), indent=1) + "\n")
    lines = [f"| {what} | {goal} | {figure} | {'told' if goal == 'told' else 'met' if holds else '**short**'} |" for what, goal, figure, holds in known.values()]
    page = folder / "summary.md"
    before = page.read_text().split("| what |")[0] if page.exists() else ""
    page.write_text("\n".join([before + "| what | goal | figure | |", "| --- | --- | --- | --- |", *lines, ""]))
    sys.exit(0 if all(row[3] for row in rows) else 1)
