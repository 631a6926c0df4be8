"""What the tests of the client stand on: a folder served as a bucket by `stoker emulate`, and a node of their own.

STOKER_BIN names the program. Everything lies in a scratch folder, which the node's end leaves empty of mounts.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List, Optional, Tuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import stoker  # noqa: E402
from stoker import _place  # noqa: E402

BIN = os.environ.get("STOKER_BIN", "")


def noise(size: int, seed: int) -> bytes:
    """Bytes of a seed; they repeat, each time with the number of the time."""
    chance = random.Random(seed)
    piece = bytes(chance.getrandbits(8) for _ in range(min(size, 4099)))
    times = -(-size // max(1, len(piece) + 8))
    return b"".join(piece + number.to_bytes(8, "little") for number in range(times))[:size]


class Bed(unittest.TestCase):
    """A bucket, and the environment of a user of its own."""

    #: Files of the bucket.
    content: Dict[str, bytes] = {}
    #: More words for the server.
    server_words: List[str] = []
    #: Keys without which it lets nobody in; none lets in whoever comes.
    server_keys: Optional[Tuple[str, str]] = None

    def setUp(self) -> None:
        self.scratch = tempfile.mkdtemp(prefix="stoker-py-")
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)
        self.bucket = os.path.join(self.scratch, "bucket")
        os.mkdir(self.bucket)
        for name, content in self.content.items():
            self.put(name, content)
        for name in [name for name in os.environ if name.startswith(("AWS_", "STOKER_", "XDG_"))]:
            self.addCleanup(os.environ.__setitem__, name, os.environ.pop(name))
        self.cache = os.path.join(self.scratch, "cache")
        self.given("STOKER_BIN", BIN)
        self.given("STOKER_RUNTIME_DIR", os.path.join(self.scratch, "run"))
        self.given("HOME", self.scratch)
        self.given("AWS_EC2_METADATA_DISABLED", "true")
        named = ("STOKER_EMULATE_ACCESS_KEY", "STOKER_EMULATE_SECRET_KEY")
        self.server = subprocess.Popen(
            [BIN, "emulate", self.bucket, "--bucket", "bucket", "--listen", "127.0.0.1:0", *self.server_words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **dict(zip(named, self.server_keys or ()))},
        )
        self.addCleanup(self.end, self.server)
        assert self.server.stdout is not None
        self.addCleanup(self.server.stdout.close)
        line = self.server.stdout.readline()
        while line and "http://" not in line:
            line = self.server.stdout.readline()
        self.endpoint = "http://" + line.split("http://", 1)[1].split()[0].rstrip("/").replace("/bucket", "")
        self.url = "s3://bucket"
        self.reach = {"endpoint": self.endpoint, "region": "us-east-1", "anonymous": True, "cache": self.cache}
        self.addCleanup(self.end_node)

    def given(self, name: str, value: str) -> None:
        before = os.environ.get(name)
        os.environ[name] = value
        self.addCleanup(lambda: os.environ.__setitem__(name, before) if before is not None else os.environ.pop(name, None))

    def put(self, name: str, content: bytes) -> None:
        path = os.path.join(self.bucket, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        # What was written a moment ago is not kept.
        os.utime(path, (1_600_000_000, 1_600_000_000))

    def open(self, **more: object) -> stoker.Data:
        data = stoker.open(self.url, **{**self.reach, **more})  # type: ignore[arg-type]
        self.addCleanup(data.close)
        return data

    def orders(self) -> List[Dict[str, Any]]:
        """Those of data sets that are open without a mount."""
        return [order for opened in stoker.status(cache=self.cache)["opened"] for order in opened.get("orders", [])]

    def end(self, process: "subprocess.Popen[str]") -> None:
        process.terminate()
        process.wait(20)

    def node(self) -> Optional[int]:
        """The process of the node."""
        try:
            return int(stoker.status(cache=self.cache)["pid"])
        except (OSError, ValueError):
            return None

    def kill_node(self, how: int = signal.SIGKILL) -> None:
        pid = self.node()
        if pid is not None:
            os.kill(pid, how)
            until = time.monotonic() + 20
            while os.path.exists("/proc/%d" % pid) and time.monotonic() < until:
                # It may be this process's own child.
                _place._started[:] = [node for node in _place._started if node.poll() is None]
                time.sleep(0.02)

    def end_node(self) -> None:
        self.kill_node(signal.SIGTERM)


def eventually(what: str, is_so: Callable[[], bool]) -> None:
    """Wait until something is so; it is an error where that takes a minute."""
    until = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > until:
            raise AssertionError("it never came: " + what)
        time.sleep(0.05)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
