"""A store with limits and the nodes of a cluster, as processes of this machine. Ends what it started, and nothing else."""

import atexit
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

STOKER = Path(os.environ.get("STOKER") or Path(__file__).parents[2] / "target/release/stoker").resolve()
BUCKET = "bucket"

# How nodes were mounted, as they said before they ended.
SEEN = {"passthrough": set(), "encrypted": set()}

# Nothing packs it.
NOISE = random.Random(0).randbytes(1 << 20)


# Below those that the kernel gives to whoever connects: members connect to each other before all of them listen.
PORTS = itertools.count(random.randrange(22_000))


def free_port():
    for number in PORTS:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", 10_000 + number % 22_000))
            return one.getsockname()[1]


class Bed:
    """A scratch folder, a data set in it, and the store that serves it."""

    def __init__(self, files, bytes_each, net=None, **limits):
        self.net = net
        self.scratch = Path(tempfile.mkdtemp(prefix="stoker-cluster-"))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STOKER_"))}
        self.environment |= {"STOKER_RUNTIME_DIR": str(self.scratch / "run"), "HOME": str(self.scratch), "NO_COLOR": "1"}
        self.files, self.bytes_each, self.total = files, bytes_each, files * bytes_each
        self.sums = []
        self.nodes, self.servers, self.store, self.others = [], [], None, []
        data = self.scratch / "data"
        data.mkdir()
        for number in range(files):
            self.sums.append(self.put(number, content(number, bytes_each)))
        self.serve(**limits)

    def put(self, name, bytes_of_it):
        """An object from outside, new or in the place of what there was; its sum. A number is a name, too."""
        new = self.scratch / "object.new"
        new.write_bytes(bytes_of_it)
        os.replace(new, self.scratch / "data" / (f"{name:05}" if isinstance(name, int) else name))
        return zlib.crc32(bytes_of_it)

    def serve(self, bandwidth=None, latency=None, requests=None, throttle=None):
        self.port = getattr(self, "port", None) or free_port()
        self.store_at = f"{self.net.here if self.net else '127.0.0.1'}:{self.port}"
        words = [*self.inside("hub"), STOKER, "emulate", self.scratch / "data", "--bucket", BUCKET, "--listen", f"{'0.0.0.0' if self.net else '127.0.0.1'}:{self.port}"]
        words += ["--bandwidth", bandwidth] if bandwidth else []
        words += ["--latency", latency] if latency else []
        words += ["--requests-per-second", str(requests)] if requests else []
        words += ["--throttle", throttle] if throttle else []
        self.store = subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE)
        # It says where it listens once it does.
        self.store.stdout.readline()

    def inside(self, host):
        return self.net.inside(host) if self.net else []

    def mount(self, count, cache_bytes, fill="off", memory="128MiB", more=()):
        self.write_hosts(count)
        for number in range(count):
            self.mount_one(number, cache_bytes, fill, memory, more)
        wait_for(lambda: self.all_answer(count), "all members answer")

    def write_hosts(self, count, weights=None):
        """A list of so many members."""
        address = self.net.address if self.net else lambda number: "127.0.0.1"
        weights = weights or count * [1]
        lines = [f"{address(number)}:{free_port()} name=n{number} weight={weights[number]}\n" for number in range(count)]
        for number in range(count):
            self.tell(number, "".join(lines))

    def hosts_of(self, number):
        """The list of members that a node is told by: each has its own."""
        return self.scratch / f"hosts{number}"

    def told_by_file(self, number):
        return ["--members", self.hosts_of(number), "--listen", f"n{number}"]

    def tell(self, number, text):
        """Tell a node of other members; of whom it was told before."""
        path, new = self.hosts_of(number), self.scratch / "hosts.new"
        before = path.read_text() if path.exists() else ""
        new.write_text(text)
        os.replace(new, path)
        return before

    def mount_one(self, number, cache_bytes, fill="off", memory="128MiB", more=(), alone=False, who=None, told=None):
        """`who`: whose keys requests are signed with. `told`: what tells of members and which this is, if not a file."""
        at = self.at(number, who)
        at.mkdir(exist_ok=True)
        words = [*self.inside(number), STOKER, "mount", f"s3://{BUCKET}", at, "--detach", "--endpoint", f"http://{self.store_at}"]
        words += ["--region", "us-east-1", "--cache", self.scratch / f"cache{number}", "--cache-size", f"{max(cache_bytes, 1_000_000)}B"]
        words += ["--fill", fill, "--memory", memory, *more]
        if not alone:
            words += [*(told or self.told_by_file(number)), "--plaintext"]
        keys = {"AWS_ACCESS_KEY_ID": who, "AWS_SECRET_ACCESS_KEY": "secret"} if who else {}
        words += [] if who else ["--anonymous"]
        subprocess.run(words, env=self.environment | keys, check=True, stdout=subprocess.DEVNULL)
        if who:
            self.others.append(at)
        else:
            self.nodes.append(number)

    def serve_one(self, number, cache_bytes, memory="256MiB", told=None):
        """A node without a mount, which keeps its part for the others. Its process."""
        words = [*self.inside(number), STOKER, "node", f"s3://{BUCKET}", "--endpoint", f"http://{self.store_at}", "--anonymous", "--region", "us-east-1"]
        words += ["--cache", self.scratch / f"cache{number}", "--cache-size", f"{cache_bytes}B", "--memory", memory]
        words += [*(told or self.told_by_file(number)), "--plaintext"]
        node = subprocess.Popen(words, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.servers.append(node)
        own = str(self.scratch / f"cache{number}")
        wait_for(lambda: any(status.get("serving") and status["cache"] == own for status in self.status()), "it is there")
        return node

    def load(self, node):
        """Bring all to the disks of the cluster, where it fits. How many loads that took: one that ends before owners were told of
        the room that others have leaves some of it."""
        for count in range(1, 16):
            done = subprocess.run([STOKER, "load", self.at(node)], env=self.environment, check=False, capture_output=True, text=True)
            if done.returncode == 0:
                return count
            time.sleep(1)
        raise RuntimeError(f"a load ended with {done.returncode}: {done.stderr}")

    def hint(self, node, numbers):
        """Say to a node which files will be read there, in their order."""
        lines = "".join(f"{number:05}\n" for number in numbers)
        words = [STOKER, "hint", self.at(node), "--files", "-"]
        subprocess.run(words, env=self.environment, check=True, input=lines, text=True, stdout=subprocess.DEVNULL)

    def at(self, node, who=None):
        return self.scratch / f"m{node}{who or ''}"

    def status(self):
        said = subprocess.run([STOKER, "status", "--json"], env=self.environment, check=True, capture_output=True).stdout
        lines = [json.loads(line) for line in said.splitlines()]
        return [line for line in lines if "dead" not in line]

    def kept(self, node, folder=""):
        """The names that lie on the disk of a node, whole. It tells the first thousand of a folder."""
        said = subprocess.run([STOKER, "status", "--json", self.at(node) / folder], env=self.environment, check=True, capture_output=True).stdout
        entries = json.loads(said.splitlines()[0])["kept"]["entries"]
        return {entry["name"] for entry in entries if entry["kept_files"]}

    def tier(self, name):
        """Bytes that all nodes had from there so far: of the disk also what they read for others."""
        return sum(node["tiers"][name]["bytes"] for node in self.status())

    def drop(self):
        """What the kernel has in memory of the caches of all nodes. Of this machine's other files it keeps what it has."""
        for folder, _, names in (each for cache in self.scratch.glob("cache*") for each in os.walk(cache)):
            for name in names:
                # It may be gone by now.
                with contextlib.suppress(OSError):
                    descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(descriptor)

    @contextlib.contextmanager
    def dropping(self):
        """Again and again meanwhile: what passes through leaves pages of the cache's files, which readers can't name."""
        over = threading.Event()

        def work():
            took = 0
            while not over.wait(max(1, 10 * took)):
                began = time.monotonic()
                self.drop()
                took = time.monotonic() - began

        dropper = threading.Thread(target=work)
        dropper.start()
        try:
            yield
        finally:
            over.set()
            dropper.join()

    def all_answer(self, count):
        members = [member for node in self.status() for member in node["cluster"]["members"]]
        return len(members) == count * count and all(member["answering"] for member in members)

    def counters(self):
        """What the store counted itself: it tells programs of its own machine."""
        words = [*self.inside("hub"), sys.executable, "-c", f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{self.port}/-/counters').read().decode())"]
        return json.loads(subprocess.run(words, check=True, capture_output=True).stdout)

    def sent(self):
        """Bytes of objects that left the store, by its own count: whether anybody took them or not."""
        return self.counters()["get"]["bytes_out"]

    def figure(self, name):
        return sum(node["cluster"][name] for node in self.status() if node.get("cluster"))

    def cpu_seconds(self, number=None):
        """Of all nodes so far, or of one."""
        ticks = os.sysconf("SC_CLK_TCK")
        pids = [node["pid"] for node in self.status()] if number is None else [self.pid(number)]
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
        return sum(int(field[11]) + int(field[12]) for field in fields) / ticks

    def pid(self, number):
        cache = str(self.scratch / f"cache{number}")
        return next(node["pid"] for node in self.status() if node["cache"] == cache)

    def kill(self, number):
        """For good: whoever would start another one first."""
        cache = str(self.scratch / f"cache{number}")
        node = next(node for node in self.status() if node["cache"] == cache)
        os.kill(node["pid"], signal.SIGSTOP)
        for pid in filter(None, [node["keeper"].get("pid"), node["pid"]]):
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["umount", "-l", self.at(number)], check=False, stderr=subprocess.DEVNULL)
        self.nodes.remove(number)

    def note_how(self):
        for node in self.status():
            SEEN["passthrough"] |= {mount["passthrough"] for mount in node["mounts"]}
            SEEN["encrypted"] |= {node["cluster"]["encrypted"]} if node.get("cluster") else set()

    def unmount(self):
        self.note_how()
        for at in [*map(self.at, self.nodes), *self.others]:
            subprocess.run([STOKER, "umount", "--lazy", at], env=self.environment, check=False, stdout=subprocess.DEVNULL)
        self.nodes, self.others = [], []
        for server in self.servers:
            server.send_signal(signal.SIGCONT)
            server.terminate()
            server.wait()
        self.servers = []
        wait_for(lambda: not self.status(), "the nodes have ended")

    def close(self):
        try:
            self.unmount()
        finally:
            self.store.terminate()
            self.store.wait()
            if self.net:
                self.net.close()
        # At the end of all: ext4 takes long to find an inode for a new file where many were deleted within half a minute.
        atexit.register(shutil.rmtree, self.scratch, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def sum_of(path):
    """The sum of all bytes of a file, which leaves the kernel's cache at once."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        crc, at = 0, 0
        while piece := os.pread(descriptor, 1 << 20, at):
            crc, at = zlib.crc32(piece, crc), at + len(piece)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return crc


def content(number, size):
    """Bytes that tell every 4 KiB which file they are of, and where in it; noise between."""
    pieces = []
    for at in range(0, size, 4096):
        of_noise = at % len(NOISE)
        pieces += [number.to_bytes(8, "little"), at.to_bytes(8, "little"), NOISE[of_noise + 16 : of_noise + 4096]]
    return b"".join(pieces)[:size]


def wait_for(what, name, seconds=30):
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise TimeoutError(f"never happened: {name}")
        time.sleep(0.05)
