"""Bytes and names, as a data set gives them, whatever happens meanwhile."""

import errno
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import unittest

import support
from support import Bed, descriptors, eventually, noise

import stoker

SMALL = {"%s/%04d" % ("abc"[n % 3], n): noise(1000 + n, n) for n in range(150)}


def _same(data, content):
    names = list(content)
    found = data.read_many(names)
    return all(content[name] == one for name, one in zip(names, found))


def _reads(data):
    """Ends with 0 if all was right, each of many times, and on connections of its own."""
    inherited = _sockets(data)
    right = bool(inherited) and all(_same(data, SMALL) for _ in range(20))
    sys.exit(0 if right and not inherited & _sockets(data) else 1)


def _sockets(data):
    return {os.fstat(line.socket.fileno()).st_ino for line in data._idle}


class Reading(Bed):
    content = {**SMALL, "empty": b""}

    def test_a_batch_is_what_the_bucket_has_in_the_order_of_the_question(self):
        data = self.open()
        names = sorted(SMALL, reverse=True)
        self.assertEqual(data.list(), sorted(self.content))
        for _ in range(2):
            self.assertEqual(data.read_many(names), [SMALL[name] for name in names])
        self.assertEqual(data.read("empty"), b"")
        self.assertEqual((data.files, data.bytes), (151, sum(map(len, self.content.values()))))
        self.assertEqual(data.list("a")[0], "0000")
        self.assertEqual(data.entries(), [("a/", 0), ("b/", 0), ("c/", 0), ("empty", 0)])
        lending = stoker.status(cache=self.cache)["lending"]
        self.assertGreaterEqual(lending["files_lent"], 300, "complete files are lent, not copied")

    def test_one_text_is_no_list_of_its_letters(self):
        data = self.open()
        for ask in (data.read_many, data.look, data.hint, lambda one: data.load(include=one), lambda one: data.load(names=one)):
            with self.assertRaisesRegex(TypeError, r"try: \['a/0000'\]"):
                ask("a/0000")
        self.assertRaisesRegex(ValueError, "not 'odd'", data.read_many, ["a/0000"], errors="odd")
        self.assertRaises(TypeError, data.hint, [1.5])
        self.assertRaisesRegex(OSError, "at a time", data.hint, iter(lambda: 0, 1))
        self.assertRaisesRegex(TypeError, "no argument 'rank'", data.hint, rank=5, world=2)

    def test_what_needs_a_library_comes_when_it_is_asked_for(self):
        code = "import stoker, sys; assert 'stoker.torch' not in sys.modules; print(stoker.torch.__name__)"
        at = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(stoker.__file__))}
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=at)
        self.assertEqual(done.stdout, "stoker.torch\n", done.stderr)
        with self.assertRaisesRegex(AttributeError, "no attribute 'odd'"):
            stoker.odd

    def test_the_cache_is_where_the_environment_says(self):
        self.given("STOKER_CACHE", self.cache)
        data = self.open(cache=None)
        data.read("a/0000")
        path = data.path("a/0000")
        self.assertTrue(path is not None and path.startswith(self.cache + "/"), path)

    def test_ranges_are_cut_at_the_end_and_a_buffer_is_filled(self):
        data = self.open()
        name = "a/0000"
        self.assertEqual(data.read(name, 10, 20), SMALL[name][10:30])
        self.assertEqual(data.read(name, 990, 100), SMALL[name][990:])
        self.assertEqual(data.read(name, 5000, 1), b"")
        self.assertEqual(data.read_many([name, name], ranges=[(0, 1), (1, None)]), [SMALL[name][:1], SMALL[name][1:]])
        names = sorted(SMALL)[:100]
        buffer = bytearray(sum(len(SMALL[name]) for name in names))
        views = data.read_many(names, into=buffer)
        self.assertEqual([bytes(view) for view in views], [SMALL[name] for name in names])
        self.assertFalse(views[0].readonly)
        with self.assertRaises(ValueError):
            data.read_many(names, into=bytearray(100))
        self.assertEqual(data.read(name), SMALL[name], "the connection is as good as before")

    def test_failures_are_python_s_own_and_others_of_the_batch_come(self):
        data = self.open()
        with self.assertRaises(FileNotFoundError) as caught:
            data.read("a/none")
        self.assertEqual(caught.exception.filename, "a/none")
        for odd in ("..", "../bucket", "a/../a/0000", "/../../etc/passwd", "", "a\0b", "x" * 4000):
            with self.assertRaises(OSError, msg=odd):
                data.read(odd)
        with self.assertRaises(IsADirectoryError):
            data.read("a")
        with self.assertRaises(OSError) as caught:
            data.read("x" * 5000)
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        with self.assertRaises(FileNotFoundError):
            stoker.open(os.path.join(self.scratch, "nothing"), cache=self.cache)
        found = data.read_many(["a/0000", "nope", "empty"], errors="return")
        self.assertEqual((found[0], found[2]), (SMALL["a/0000"], b""))
        self.assertIsInstance(found[1], FileNotFoundError)
        with self.assertRaises(stoker.Unreachable):
            stoker.open("s3://bucket", socket=os.path.join(self.scratch, "nobody.data"))

    def test_a_path_is_that_of_a_local_file_with_the_same_bytes(self):
        data = self.open()
        path = data.path("a/0000")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), SMALL["a/0000"])

    def test_what_is_pickled_is_short_and_finds_its_node_again(self):
        data = self.open()
        text = pickle.dumps(data)
        self.assertLessEqual(len(text), 1024)
        self.assertEqual(pickle.loads(text).read("a/0000"), SMALL["a/0000"])

    def test_processes_of_each_kind_read_beside_a_client_that_was_used_before(self):
        data = self.open()
        self.assertTrue(_same(data, SMALL))
        for kind in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(kind)
            with context.Pool(4) as pool:
                results = [pool.apply_async(_same, (data, SMALL)) for _ in range(16)]
                self.assertTrue(_same(data, SMALL), kind)
                self.assertTrue(all(result.get(120) for result in results), kind)
        # What is handed to a fork is not pickled: each has the parent's connections before it.
        before = descriptors()
        children = [multiprocessing.get_context("fork").Process(target=_reads, args=(data,)) for _ in range(4)]
        for child in children:
            child.start()
        for _ in range(20):
            self.assertTrue(_same(data, SMALL), "the parent reads on")
        for child in children:
            child.join(60)
            self.assertEqual(child.exitcode, 0)
            child.close()
        self.assertEqual(descriptors(), before)

    def test_threads_share_a_client_and_no_answer_is_mixed_up(self):
        data = self.open()
        wrong = []

        def read():
            for _ in range(20):
                if not _same(data, SMALL):
                    wrong.append(1)

        threads = [threading.Thread(target=read) for _ in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])

    def test_descriptors_are_the_same_number_after_as_before_also_where_few_are_allowed(self):
        data = self.open()
        self.assertTrue(_same(data, SMALL))
        before = descriptors()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, before + 20), limits[1]))
            for _ in range(20):
                self.assertTrue(_same(data, SMALL))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertEqual(descriptors(), before)

    def test_an_interrupt_amid_a_batch_leaves_nothing_that_the_next_could_take_for_its_own(self):
        data = self.open()
        before = descriptors()

        class Interrupt(BaseException):
            pass

        def interrupt(*_):
            raise Interrupt()

        old = signal.signal(signal.SIGALRM, interrupt)
        caught = 0
        try:
            for number in range(60):
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + number * 0.0001)
                try:
                    while True:
                        data.read_many(["a/0000", "b/0001"])
                except Interrupt:
                    caught += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                self.assertTrue(_same(data, {"c/0002": SMALL["c/0002"]}))
        finally:
            signal.signal(signal.SIGALRM, old)
        self.assertEqual(caught, 60)
        self.assertLessEqual(descriptors(), before + 2)

    def test_a_node_that_is_killed_or_ended_under_its_reader_costs_no_error(self):
        data = self.open()
        for how in (signal.SIGKILL, signal.SIGTERM):
            self.assertTrue(_same(data, SMALL))
            self.kill_node(how)
            self.assertTrue(_same(data, SMALL))

    def test_a_node_that_is_killed_amid_batches_costs_no_error(self):
        data = self.open()
        self.assertTrue(_same(data, SMALL))
        over = threading.Event()

        def kill():
            for _ in range(3):
                time.sleep(0.3)
                self.kill_node()
            over.set()

        killing = threading.Thread(target=kill)
        killing.start()
        while not over.is_set():
            self.assertTrue(_same(data, SMALL))
        killing.join()

    def test_a_node_ends_with_its_last_reader(self):
        data = self.open()
        pid = self.node()
        data.close()
        until = time.monotonic() + 60
        while os.path.exists("/proc/%d" % pid) and time.monotonic() < until:
            [node.poll() for node in support._place._started]
            time.sleep(0.1)
        self.assertFalse(os.path.exists("/proc/%d" % pid))

    def test_what_is_loaded_is_lent_and_asked_of_no_store_again(self):
        data = self.open()
        seen = []
        done = data.load("a", progress=seen.append)
        self.assertEqual((done["files_done"], done["files_failed"]), (50, 0))
        gets = stoker.status(cache=self.cache)["store"]["gets"]
        data.read_many([name for name in SMALL if name.startswith("a/")])
        self.assertEqual(stoker.status(cache=self.cache)["store"]["gets"], gets)

    def test_an_order_by_numbers_and_names_is_taken_and_shown(self):
        data = self.open()
        self.assertEqual(data.hint([3, 1, 2], name="one")["files"], 3)
        self.assertEqual(data.hint(["a/0003", "a/0000"])["files"], 2)
        opened = stoker.status(cache=self.cache)["opened"]
        self.assertEqual((len(opened), opened[0]["url"], len(opened[0]["orders"])), (1, "s3://bucket", 2))

    def test_orders_are_forgotten_with_the_processes_that_said_them(self):
        data = self.open()
        for number in range(300):
            child = os.fork()
            if child == 0:
                said = None
                try:
                    said = data.hint([1, 2], name="job %d" % number)
                finally:
                    os._exit(0 if said else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0, "the orders of %d jobs were said and are over" % number)
        data.hint([3], name="this one")
        eventually("orders are forgotten", lambda: [order["name"] for order in self.orders()] == ["this one"])

    def test_an_order_stays_while_somebody_opens_by_it_also_where_that_which_said_it_is_gone(self):
        data = self.open()
        waits, over = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(over)
                data.hint(["a/0000", "a/0003", "a/0006"])
                os.read(waits, 1)
            finally:
                os._exit(0)
        os.close(waits)
        eventually("the order is there", lambda: len(self.orders()) == 1)
        data.read("a/0000")
        os.close(over)
        os.waitpid(child, 0)
        other = os.fork()
        if other == 0:
            try:
                data.hint(["b/0001"], name="another")
            finally:
                os._exit(0)
        os.waitpid(other, 0)
        eventually("the other one is forgotten", lambda: len(self.orders()) == 1)
        data.read("a/0003")
        self.assertEqual([(order["opened"], order["misses"]) for order in self.orders()], [(2, 0)])

    def test_a_refresh_shows_what_came(self):
        data = self.open()
        self.put("new", b"new")
        with self.assertRaises(FileNotFoundError):
            data.read("new")
        data.refresh()
        self.assertEqual(data.read("new"), b"new")

    def test_a_local_folder_is_read_where_it_lies(self):
        data = stoker.open(self.bucket, cache=self.cache)
        self.addCleanup(data.close)
        self.assertTrue(_same(data, SMALL))
        self.assertEqual(data.path("a/0000"), os.path.join(self.bucket, "a/0000"))


class Sizes(Bed):
    content = {
        str(size): noise(size, size)
        for size in (0, 1, 4096, 65536, 262143, 262144, 262145, 1 << 20, (1 << 20) + 1, 9_000_001, 50_000_000, 300_000_000)
    }

    def test_every_size_is_equal_byte_by_byte_cold_and_warm(self):
        data = self.open()
        for _ in range(3):
            for name in self.content:
                self.assertTrue(data.read(name) == self.content[name], name)
        names = [name for name in self.content if int(name) < 10_000_000]
        self.assertTrue(data.read_many(names) == [self.content[name] for name in names])


class Parts(Bed):
    """Cold files that come in parts."""

    content = {name: noise(40_000_000, number) for number, name in enumerate("abc")}

    def test_a_file_that_comes_in_parts_is_one_open_to_its_order(self):
        data = self.open()
        data.hint(["b", "a", "c"])
        self.assertTrue(data.read_many(["b", "a"]) == [self.content["b"], self.content["a"]])
        (order,) = self.orders()
        self.assertEqual((order["opened"], order["misses"], order["left"]), (2, 0, 1))

    def test_a_file_that_is_read_in_parts_is_one_open_to_its_order(self):
        data = self.open()
        data.hint(["c", "b"])
        data.path("c")
        for name in ("c", "b"):
            parts = [data.read(name, offset, 1_000_000) for offset in range(0, 40_000_000, 1_000_000)]
            self.assertTrue(b"".join(parts) == self.content[name])
        (order,) = self.orders()
        self.assertEqual((order["opened"], order["misses"], order["left"]), (2, 0, 0))
        data.read("c", 0, 1)
        self.assertEqual(self.orders()[0]["misses"], 1, "from its beginning once more it is another")


class Unkept(Bed):
    """A cache that keeps next to nothing: bytes are copied."""

    content = {"%03d" % n: noise(100_000 + n, n) for n in range(100)}

    def test_what_is_not_kept_is_copied_checked_and_given_back(self):
        node = subprocess.Popen(
            [support.BIN, "node", "--cache", self.cache, "--cache-size", "1MB", "--memory", "64MiB"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(node.wait)
        self.addCleanup(node.terminate)
        until = time.monotonic() + 30
        while self.node() is None and time.monotonic() < until:
            time.sleep(0.05)
        data = self.open()
        for _ in range(2):
            self.assertTrue(_same(data, self.content))
        until = time.monotonic() + 30
        while True:
            lending = stoker.status(cache=self.cache)["lending"]
            if lending["lent_memory"] == 0 or time.monotonic() > until:
                break
            time.sleep(0.05)
        self.assertGreater(lending["bytes_copied"], 10_000_000)
        self.assertEqual(lending["lent_memory"], 0)


class Trees(Bed):
    """The doors of frameworks."""

    content = {"cat/1.jpg": b"one", "cat/2.jpg": b"two", "dog/1.jpg": b"three", "dog/x/0.jpg": b"four", "dog/z.txt": b"no"}

    def test_an_image_folder_numbers_as_a_walk_through_folders_does(self):
        from stoker.torch import Files, ImageFolder

        images = ImageFolder(self.open(), loader=bytes)
        walked = []
        for number, name in enumerate(sorted(os.listdir(self.bucket))):
            for root, _, files in sorted(os.walk(os.path.join(self.bucket, name))):
                for file in sorted(files):
                    if file.endswith(".jpg"):
                        walked.append((os.path.relpath(os.path.join(root, file), self.bucket), number))
        self.assertEqual(images.samples, walked)
        self.assertEqual(images.__getitems__([3, 0]), [(b"four", 1), (b"one", 0)])
        again = pickle.loads(pickle.dumps(images))
        self.assertEqual((len(again), again[1]), (4, (b"two", 0)))
        self.assertLessEqual(len(pickle.dumps(Files(self.open()))), 1024)
        self.assertEqual(Files(self.open(), ["dog/z.txt"], transform=len)[0], 2)

    def test_a_number_is_the_same_file_in_each_worker_or_none_after_a_refresh(self):
        from stoker.torch import Files, ImageFolder

        data = self.open()
        sets = {"files": Files(data), "images": ImageFolder(data, loader=bytes)}
        pickled = {kind: pickle.dumps(files) for kind, files in sets.items()}
        lengths = {kind: len(files) for kind, files in sets.items()}
        self.assertTrue(all(len(text) <= 1024 for text in pickled.values()))
        data.refresh()
        for kind, text in pickled.items():
            self.assertEqual(pickle.loads(text).files, sets[kind].files, "the same names again")
        self.put("cat/0.jpg", b"before all others")
        data.refresh()
        for kind, files in sets.items():
            self.assertEqual((len(files), files[0] in (b"one", (b"one", 0))), (lengths[kind], True), "here it goes on")
            for text in (pickled[kind], pickle.dumps(files)):
                worker = pickle.loads(text)
                with self.assertRaises(OSError) as caught:
                    worker[0]
                self.assertEqual(caught.exception.errno, errno.ESTALE)
                self.assertIn("make the data set anew", str(caught.exception))
        self.assertEqual(Files(data).files[0], "cat/0.jpg")
        given = pickle.loads(pickle.dumps(Files(data, ["dog/z.txt"])))
        self.assertEqual(given[0], b"no", "names that were given are nobody else's")

    def test_the_examples_in_the_documentation_are_true(self):
        import doctest

        import stoker.torch

        self.open()
        self.given("STOKER_SOCKET", support._place.of_cache(self.cache))
        for path in list(self.content):
            if path not in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
                os.remove(os.path.join(self.bucket, path))
        self.open().refresh()
        opened = stoker.open
        self.addCleanup(setattr, stoker, "open", opened)
        for module in (stoker, stoker.torch):
            self.given("AWS_ENDPOINT_URL", self.endpoint)
            self.given("AWS_REGION", "us-east-1")
            self.given("AWS_ACCESS_KEY_ID", "AKIATESTTESTTEST")
            self.given("AWS_SECRET_ACCESS_KEY", "nobody")
            attempted = 0
            for example in doctest.DocTestFinder().find(module, extraglobs={"URL": self.url}):
                # What needs PyTorch is run where it is: test_torch.py.
                if "import DataLoader" not in (example.docstring or ""):
                    done = doctest.DocTestRunner().run(example)
                    attempted += done.attempted
                    self.assertEqual(done.failed, 0, example.name)
            self.assertGreater(attempted, 2)


@unittest.skipUnless(__import__("importlib").util.find_spec("fsspec"), "SKIPPED: there is no fsspec here")
class Fsspec(Bed):
    content = {"a/1": b"one", "a/b/2": b"twotwo", "c": b"three"}

    def test_names_bytes_and_ranges_come_as_fsspec_wants_them(self):
        from stoker.fsspec import FileSystem

        fs = FileSystem(root=self.url, **self.reach)
        self.assertEqual(sorted(fs.ls("", detail=False)), ["a", "c"])
        self.assertEqual(fs.find(""), ["a/1", "a/b/2", "c"])
        self.assertEqual(fs.cat("c"), b"three")
        self.assertEqual(fs.cat(["a/1", "c"]), {"a/1": b"one", "c": b"three"})
        self.assertEqual(fs.cat_ranges(["c", "a/b/2"], [1, -3], [3, None]), [b"hr", b"two"])
        self.assertEqual((fs.isdir("a"), fs.isfile("a"), fs.exists("x")), (True, False, False))
        with fs.open("a/b/2") as file:
            self.assertEqual((file.read(3), file.read()), (b"two", b"two"))
        with self.assertRaises(OSError):
            fs.open("a/1", "wb")
        with self.assertRaises(FileNotFoundError):
            fs.cat("x")
        again = pickle.loads(pickle.dumps(fs))
        self.assertEqual(again.cat("s3://bucket/c"), b"three")
        target = os.path.join(self.scratch, "got")
        fs.get("a", target, recursive=True)
        with open(os.path.join(target, "b/2"), "rb") as file:
            self.assertEqual(file.read(), b"twotwo")
        self.assertGreater(fs.modified("c").timestamp(), 1e9)
        self.assertNotEqual(fs.ukey("c"), fs.ukey("a/1"))

    def test_open_local_gives_a_path(self):
        import fsspec

        from stoker.fsspec import FileSystem

        fsspec.register_implementation("stoker", FileSystem, clobber=True)
        path = fsspec.open_local("stoker://c", root=self.url, **self.reach)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"three")
        with fsspec.open("stoker://s3://bucket/a/1", **self.reach) as file:
            self.assertEqual(file.read(), b"one")


if __name__ == "__main__":
    unittest.main()
