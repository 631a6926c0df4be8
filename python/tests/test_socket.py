"""The data socket as those see it who mean harm, or who are somebody else."""

import json
import os
import random
import socket
import struct
import subprocess
import time
import unittest

import support
from support import Bed, noise

import stoker

SMALL = {"a/%d" % n: noise(2000, n) for n in range(20)}


def frame(body, descriptors=0, length=None):
    return struct.pack("<IHH", len(body) if length is None else length, descriptors, 0) + body


class Raw:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)

    def ask(self, message):
        self.socket.sendall(frame(json.dumps(message).encode()))
        return self.hear()

    def hear(self):
        """The next message; None if the other side hung up."""
        header = self.exactly(8)
        return None if header is None else json.loads(self.exactly(struct.unpack("<IHH", header)[0]))

    def exactly(self, length):
        got = b""
        while len(got) < length:
            try:
                more = self.socket.recv(length - len(got))
            except ConnectionResetError:
                return None
            if not more:
                return None
            got += more
        return got


class Hostile(Bed):
    content = SMALL

    def setUp(self):
        super().setUp()
        self.data = self.open()
        self.path = support._place.of_cache(self.cache)
        self.addCleanup(self.is_as_before)

    def is_as_before(self):
        self.assertEqual(self.data.read_many(list(SMALL)), list(SMALL.values()), "others are served on")

    def line(self):
        raw = Raw(self.path)
        self.addCleanup(raw.socket.close)
        return raw

    def greeted(self):
        raw = self.line()
        hello = {"version": 1, "url": self.url, "endpoint": self.endpoint, "region": "us-east-1", "anonymous": True}
        self.assertEqual(raw.ask(hello)["objects"], 20)
        return raw

    def test_another_version_is_refused_by_its_number(self):
        said = self.line().ask({"version": 2, "url": self.url})
        self.assertIn("version 1", said["error"]["what"])

    def test_what_is_no_frame_ends_the_connection_alone(self):
        for odd in (b"GET / HTTP/1.1\r\n\r\n", frame(b"{}", length=1 << 31), frame(b"{}", descriptors=3), b"\0" * 7 + b"\1"):
            raw = self.line()
            raw.socket.sendall(odd)
            self.assertIsNone(raw.hear())
        for odd in (b"", b"nonsense", b"[]", b'{"version": "1"}', b"\xff\xfe", b"[" * 10000):
            raw = self.line()
            raw.socket.sendall(frame(odd))
            self.assertIn("error", raw.hear())

    def test_questions_that_can_t_be_meant_are_refused_and_the_next_is_answered(self):
        raw = self.greeted()
        for odd in (
            {"read": {"names": ["a/0"] * 65}},
            {"read": {"names": ["x" * 5000]}},
            {"read": {"names": ["a/0"], "ranges": [[0, 1], [0, 1]]}},
            {"read": {"names": ["a/0"], "nodes": []}},
            {"read": {"names": ["a/0"], "ranges": [[-1, 1]]}},
            {"list": {"under": "nothing"}},
            {"write": {}},
            {},
            [],
        ):
            self.assertIn("error", raw.ask(odd), odd)
        for name in ("..", "a/../a/0", "../../etc/passwd", "/etc/passwd", ".", "a//../0", "a\0", "\u202e"):
            self.assertIn("error", raw.ask({"read": {"names": [name]}})["items"][0], name)
        big = raw.ask({"read": {"names": ["a/0"], "ranges": [[2**64 - 1, 2**64 - 1]]}})["items"][0]
        self.assertEqual(big["size"], 2000)
        gone = raw.ask({"read": {"names": ["a/0"], "nodes": [7]}})["items"][0]
        self.assertEqual(gone["error"]["kind"], "changed")

    def test_half_frames_and_readers_that_stop_hold_up_nobody(self):
        halves = []
        for cut in (1, 4, 8, 20):
            raw = self.greeted()
            raw.socket.sendall(frame(json.dumps({"read": {"names": ["a/0"]}}).encode())[:cut])
            halves.append(raw)
        slow = self.greeted()
        try:
            for _ in range(200):
                slow.socket.sendall(frame(json.dumps({"read": {"names": list(SMALL)}}).encode()))
        except OSError:
            # Who asks before the answer is there is let go.
            pass
        self.is_as_before()

    def test_random_bytes_end_no_node(self):
        chance = random.Random(7)
        pid = self.node()
        good = json.dumps({"read": {"names": ["a/0"], "ranges": [[0, 5]], "nodes": [0]}}).encode()
        for _ in range(300):
            raw = self.greeted() if chance.random() < 0.5 else self.line()
            body = bytearray(good)
            for _ in range(chance.randrange(1, 6)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            raw.socket.sendall(frame(bytes(body)) if chance.random() < 0.8 else bytes(body))
            raw.socket.close()
        self.assertEqual(self.node(), pid)


@unittest.skipUnless(os.geteuid() == 0, "SKIPPED: only root can be somebody else")
@unittest.skipUnless(os.path.exists("/dev/fuse"), "SKIPPED: there is no /dev/fuse here")
class Others(Bed):
    content = SMALL

    def mount(self, at, *words):
        folder = os.path.join(self.scratch, at)
        os.mkdir(folder)
        words = ["--endpoint", self.endpoint, "--region", "us-east-1", "--anonymous", "--cache", self.cache, *words]
        subprocess.run([support.BIN, "mount", "--detach", self.url, folder, *words], check=True, stdout=subprocess.DEVNULL)
        self.addCleanup(subprocess.run, [support.BIN, "umount", folder], check=True, stdout=subprocess.DEVNULL)
        return folder

    def as_somebody(self, work):
        """What comes of work as another user, who has the socket itself as a container would."""
        os.chmod(self.scratch, 0o755)
        folder = os.path.join(self.scratch, "given")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "data")
        if not os.path.exists(path):
            os.link(support._place.of_cache(self.cache), path)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(12345)
                os.setuid(12345)
                found = work(path)
            except BaseException as error:
                found = type(error).__name__ + ": " + str(error)
            os.write(writing, str(found).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            out = said.read()
        os.waitpid(child, 0)
        return out

    def test_a_mount_is_shown_by_its_mode(self):
        shown = self.mount("shown")

        def by_url(path):
            return stoker.open(self.url, socket=path).read("a/3") == SMALL["a/3"]

        def by_path(folder):
            return lambda path: stoker.open(folder, socket=path).read("a/3") == SMALL["a/3"]

        self.assertEqual(self.as_somebody(by_url), "True")
        self.assertEqual(self.as_somebody(by_path(shown)), "True")
        self.assertIn("FileNotFoundError", self.as_somebody(lambda path: stoker.open(self.bucket, socket=path)))
        self.assertIn("PermissionError", self.as_somebody(lambda path: stoker.open(self.url, socket=path).refresh()))

    def test_a_mount_that_others_may_not_read_is_refused(self):
        hidden = self.mount("hidden", "--mode", "0400")
        for what in (self.url, hidden):
            said = self.as_somebody(lambda path: stoker.open(what, socket=path))
            self.assertIn("PermissionError", said)
        data = stoker.open(hidden, cache=self.cache)
        self.addCleanup(data.close)
        self.assertEqual((data.read("a/3"), data.path("a/3")), (SMALL["a/3"], os.path.join(hidden, "a/3")))
        self.assertEqual(stoker.open(os.path.join(hidden, "a"), cache=self.cache).read("4"), SMALL["a/4"])

    def test_what_is_open_without_a_mount_is_nobody_else_s(self):
        self.open()
        self.assertIn("PermissionError", self.as_somebody(lambda path: stoker.open(self.url, socket=path)))


if __name__ == "__main__":
    unittest.main()
