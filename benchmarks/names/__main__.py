#!/usr/bin/env python3
"""How many names Stoker can hold: listed, kept, mounted again and walked; and what a listing asks of each kind of store.

    python3 benchmarks/names STOKER FOLDER OUT [million] [million.latency] [given] [stores]

As root. Parts that are not named are left out of a run and keep their rows in OUT/rows.json; without any, all are run.

- million: 1,000,000 files of some bytes in FOLDER, served by `stoker emulate`; million.latency: the same with 20 ms to each first byte
- given: a manifest of 10,000,000 names, none of which is in the store
- stores: 20,000 keys at each server of benchmarks/servers.py

A node has --memory 256MiB. `anonymous` is the most anonymous memory that the node had, looked at every 20 ms.
"""
import json, os, resource, shutil, subprocess, sys, threading, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import servers

STOKER, FOLDER, OUT = (os.path.abspath(word) for word in sys.argv[1:4])
ASKED = sys.argv[4:] or ["million", "million.latency", "given", "stores"]
SCALE = float(os.environ.get("SCALE", "1"))
MOUNT, CACHE, DATA = (os.path.join(FOLDER, name) for name in ("mount", "cache", "data"))
os.environ["STOKER_RUNTIME_DIR"] = os.path.join(FOLDER, "run")
MEMORY = 256 << 20


class Watch(threading.Thread):
    """The most memory that the node of the mount had."""

    def __init__(self):
        super().__init__(daemon=True)
        self.anonymous, self.all, self.is_over = 0, 0, False

    def run(self):
        pids = []
        while not self.is_over:
            pids = pids or nodes()
            for pid in pids:
                try:
                    with open(f"/proc/{pid}/status") as file:
                        said = dict(line.split(":", 1) for line in file)
                except (OSError, ValueError):
                    # One that found another on the folder, and ended.
                    pids = []
                    break
                kibibytes = lambda name: int(said.get(name, "0 kB").split()[0]) << 10
                self.anonymous, self.all = max(self.anonymous, kibibytes("RssAnon")), max(self.all, kibibytes("VmHWM"))
            time.sleep(0.02)


def nodes():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"--for-mounts" in words and CACHE.encode() in words:
            found.append(pid)
    return found


def ran(*words, **more):
    return subprocess.run([STOKER, *words], check=True, capture_output=True, text=True, **more).stdout


def mounted(what, url, *words, env=None):
    """Mount, and what that took."""
    watch = Watch()
    watch.start()
    began = time.monotonic()
    done = subprocess.run([STOKER, "mount", "-d", url, MOUNT, "--cache", CACHE, "--fill", "off", "--memory", f"{MEMORY}B", *words],
                          capture_output=True, text=True, env={**os.environ, **(env or {})})
    seconds = time.monotonic() - began
    watch.is_over = True
    watch.join()
    if done.returncode:
        raise SystemExit(f"{what}: {done.stderr}")
    status = json.loads(ran("status", MOUNT, "--json"))
    mount = status["mounts"][0]
    return {"what": what, "seconds": seconds, "names": mount["objects"], "lists": status["store"]["lists"], "heads": status["store"]["heads"],
            "anonymous": watch.anonymous, "resident": watch.all, "snapshot": os.path.getsize(mount["snapshot"])}


def umount():
    """Unmount, and wait for the node to end: the kernel first gives back each inode that it knows."""
    began = time.monotonic()
    ran("umount", MOUNT)
    while nodes():
        time.sleep(0.05)
    return {"what": "unmounted", "seconds": time.monotonic() - began}


class Rows(list):
    """Rows that are shown as they come."""

    def append(self, row):
        print(json.dumps(row), file=sys.stderr, flush=True)
        super().append(row)


def walked(command):
    subprocess.run("sync; echo 2 > /proc/sys/vm/drop_caches", shell=True)
    watch = Watch()
    watch.start()
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    count = subprocess.run(f"set -o pipefail; {command} {MOUNT} | grep -c jpg", shell=True, executable="/bin/bash", check=True, capture_output=True, text=True).stdout
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    watch.is_over = True
    watch.join()
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    due = json.loads(ran("status", MOUNT, "--json"))["mounts"][0]["objects"]
    assert int(count) == due, f"{command}: {count.strip()} names of {due}"
    return {"what": command, "seconds": seconds, "processor": processor, "names": int(count), "anonymous": watch.anonymous}


def emulate(*words):
    server = subprocess.Popen([STOKER, "emulate", DATA, *words], stdout=subprocess.PIPE, text=True)
    endpoint = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
    return server, ["--endpoint", endpoint, "--anonymous", "--region", "us-east-1"]


def fill(folders, each):
    for folder in range(folders):
        at = f"{DATA}/names/train/n{folder:05d}"
        os.makedirs(at, exist_ok=True)
        for n in range(each):
            file = os.open(f"{at}/{folder:05d}_{n:06d}.jpg", os.O_CREAT | os.O_WRONLY)
            os.write(file, b"%d" % n)
            os.close(file)


def million(latency=None):
    folders, each = int(1000 * SCALE), 1000
    if not os.path.exists(f"{DATA}/names/train/n{folders - 1:05d}/{folders - 1:05d}_{each - 1:06d}.jpg"):
        fill(folders, each)
    server, reach = emulate(*(["--latency", latency] if latency else []))
    rows = Rows()
    try:
        shutil.rmtree(CACHE, ignore_errors=True)
        rows.append(mounted("listed", "s3://names", *reach))
        if not latency:
            rows.append(walked("find"))
            rows.append(walked("ls -lR"))
            path = os.path.join(FOLDER, "names.jsonl")
            began = time.monotonic()
            ran("manifest", "export", MOUNT, "-o", path)
            rows.append({"what": "exported", "seconds": time.monotonic() - began, "bytes": os.path.getsize(path)})
        # The walks had the kernel forget the server's names too.
        subprocess.run(["find", f"{DATA}/names", "-size", "+1G"], check=True, capture_output=True)
        began = time.monotonic()
        ran("refresh", MOUNT)
        rows.append({"what": "refreshed", "seconds": time.monotonic() - began, "lists": json.loads(ran("status", MOUNT, "--json"))["store"]["lists"] - rows[0]["lists"]})
        umount()
        rows.append(mounted("again", "s3://names", *reach))
        umount()
        if not latency:
            rows.append(mounted("by a manifest", "s3://names", "--manifest", path, *reach))
            umount()
    finally:
        server.terminate(), server.wait()
    return rows


def given():
    names, path = int(10_000_000 * SCALE), os.path.join(FOLDER, "given.jsonl")
    with open(path, "w", buffering=1 << 20) as file:
        file.write(json.dumps({"stoker_manifest": 1, "url": "s3://names", "store": "s3://names", "prefix": "", "listed": "2026-11-25T00:00:00Z",
                               "objects": names, "bytes": names * 110_000}, separators=(",", ":")) + "\n")
        for n in range(names):
            file.write('{"key":"train/n%05d/%05d_%06d.jpg","size":110000,"modified":"2026-01-01T00:00:00Z","version":"%032x"}\n'
                       % (n // 1000, n // 1000, n % 1000, n * 2654435761 % (1 << 128)))
    os.makedirs(f"{DATA}/names", exist_ok=True)
    server, reach = emulate()
    try:
        shutil.rmtree(CACHE, ignore_errors=True)
        rows = Rows()
        rows.append({"what": "text", "bytes": os.path.getsize(path)})
        rows.append(mounted("by a manifest", "s3://names", "--manifest", path, *reach))
        rows.append(walked("find"))
        rows.append(walked("ls -lR"))
        # At once: the process of before has ten million names to forget still.
        ran("umount", MOUNT)
        rows.append(mounted("again", "s3://names", "--manifest", path, *reach))
        rows.append(umount())
    finally:
        server.terminate(), server.wait()
        os.remove(path)
    return rows


def stores():
    keys = [f"train/n{n // 200:05d}/{n:06d}.jpg" for n in range(int(20_000 * SCALE))]
    rows = Rows()
    shutil.rmtree(f"{DATA}/side", ignore_errors=True)
    for key in keys:
        path = f"{DATA}/side/{key}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write("x")

    for server in servers.each(STOKER, FOLDER, Path(DATA), keys):
        for turn in range(3):
            shutil.rmtree(CACHE, ignore_errors=True)
            rows.append({"store": server.name, "turn": turn, **mounted("listed", server.url, *server.words, env=server.variables)})
            umount()
    return rows


PARTS = {"million": million, "million.latency": lambda: million("20ms"), "given": given, "stores": stores}

os.makedirs(OUT, exist_ok=True)
for folder in (MOUNT, os.environ["STOKER_RUNTIME_DIR"]):
    os.makedirs(folder, exist_ok=True)
path = os.path.join(OUT, "rows.json")
rows = json.load(open(path)) if os.path.exists(path) else {}
for part in ASKED:
    rows[part] = PARTS[part]()
    with open(path, "w") as file:
        json.dump(rows, file, indent=1)
over = [(part, row) for part in ASKED for row in rows[part] if row.get("anonymous", 0) > MEMORY]
sys.exit(f"more memory than --memory: {over}" if over else 0)
