"""Orders that a job declares by its loaders, and workers of each kind, with PyTorch itself."""

import doctest
import json
import os
import pickle
import subprocess
import unittest
from unittest import mock

import support
import torch
from support import Bed, eventually, noise
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Subset, SubsetRandomSampler

import stoker
import stoker.torch
from stoker import _place, _wire

IMAGES = {"%s/%03d.jpg" % ("abc"[number % 3], number): noise(2000 + number, number) for number in range(150)}


class Declared(Bed):
    content = {**IMAGES, "a/list.txt": b"no image", "about": b"nor this"}

    def files(self):
        return stoker.torch.Files(self.open(), transform=len)

    def images(self):
        return stoker.torch.ImageFolder(self.open(), loader=len)

    def followed(self, loader):
        """What is shown of the one order, before an epoch by it and after."""
        self.assertTrue(stoker.torch.hint(loader))
        (before,) = self.orders()
        read = sum(len(batch) if isinstance(batch, torch.Tensor) else len(batch[0]) for batch in loader)
        (after,) = self.orders()
        self.assertEqual((before["source"], before["opened"], before["left"]), ("declared", 0, read))
        self.assertEqual((after["opened"], after["misses"], after["skipped"], after["left"]), (read, 0, 0, 0))
        return before["name"]

    def test_what_a_loader_will_read_is_declared_and_each_open_is_a_hit(self):
        for files in (self.files(), self.images()):
            for workers in (0, 2):
                loader = DataLoader(files, batch_size=7, shuffle=True, num_workers=workers)
                for _ in range(2):
                    name = self.followed(loader)
                    self.assertTrue(name.startswith("torch sampler, pid %d" % os.getpid()), name)
                self.forget(name)

    def forget(self, name):
        self.open().hint(name=name, forget=True)

    def test_ranks_subsets_and_named_files_are_declared_by_the_files_that_they_mean(self):
        named = stoker.torch.Files(self.open(), sorted(IMAGES, reverse=True), transform=len)
        few = Subset(Subset(self.images(), range(10, 90)), [3, 60, 4, 1])
        ranks = DistributedSampler(self.files(), 3, 1, seed=4)
        for loader in (
            DataLoader(named, batch_size=4, shuffle=True),
            DataLoader(few, batch_size=3, shuffle=True),
            DataLoader(self.files(), batch_size=5, sampler=ranks),
            DataLoader(self.files(), batch_size=5, sampler=SubsetRandomSampler([5, 2, 9])),
        ):
            self.forget(self.followed(loader))

    def test_a_sampler_that_may_do_anything_is_not_asked(self):
        class Own(RandomSampler):
            pass

        files = self.files()
        with self.assertRaisesRegex(ValueError, "Own"):
            stoker.torch.hint(DataLoader(files, sampler=Own(files)))
        self.assertFalse(stoker.torch.hint(DataLoader([1, 2, 3], shuffle=True)), "these are no files")
        self.assertEqual(self.orders(), [])

    def test_of_an_order_that_is_too_long_for_a_request_its_beginning_is_declared(self):
        names = sorted(IMAGES)
        room = stoker.order._BODY_MAX
        self.assertLess(room + 70 * 8 * 1024, _wire._ASK_BYTES_MAX, "there is room for names of files by which numbers are told")
        for files, fits in ((self.files(), 76), (stoker.torch.Files(self.open(), names, transform=len), 18)):
            loader = DataLoader(files, batch_size=7, shuffle=True)
            with mock.patch.object(stoker.order, "_BODY_MAX", 320):
                self.assertTrue(stoker.torch.hint(loader))
            (order,) = self.orders()
            self.assertEqual(order["left"], fits)
            self.assertEqual(sum(len(batch) for batch in loader), len(files))
            self.forget(order["name"])
        for length in (0, 1, 1023, 1024, 1025, 5000):
            order = list(range(length))
            self.assertEqual(stoker.order.as_far_as_told(order), order)
        whole = ["%06d" % number for number in range(5_000_000)]
        said = stoker.order.as_far_as_told(whole)
        self.assertEqual(said, whole[: len(said)])
        self.assertTrue(0.99 * room < len(json.dumps(said, separators=(",", ":"))) <= room)

    def test_what_can_not_be_declared_ends_no_job(self):
        again = pickle.loads(pickle.dumps(DataLoader(self.files(), shuffle=True)))
        self.put("0.jpg", b"before all others")
        self.open().refresh()
        self.assertFalse(stoker.torch.hint(again), "its files were listed anew")
        data = stoker.open(self.url, socket=_place.of_cache(self.cache), **dict(self.reach, cache=None))
        self.addCleanup(data.close)
        loader = DataLoader(stoker.torch.Files(data), shuffle=True)
        self.end_node()
        with mock.patch.object(stoker.data, "WITHIN_SECONDS", 0.2):
            self.assertFalse(stoker.torch.hint(loader), "there is no node")

    def test_the_example_in_the_documentation_is_true(self):
        self.given("STOKER_CACHE", self.cache)
        for name, value in (
            ("AWS_ENDPOINT_URL", self.endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "AKIATESTTESTTEST"),
            ("AWS_SECRET_ACCESS_KEY", "nobody"),
        ):
            self.given(name, value)
        for name in self.content:
            os.remove(os.path.join(self.bucket, name))
        for name, content in (("cat/1.jpg", b"one"), ("cat/2.jpg", b"two"), ("dog/1.jpg", b"three")):
            self.put(name, content)
        (example,) = [
            one
            for one in doctest.DocTestFinder().find(stoker.torch, extraglobs={"URL": self.url})
            if one.name == "stoker.torch.hint"
        ]
        done = doctest.DocTestRunner().run(example)
        self.assertEqual((done.failed, done.attempted), (0, 5))

    @unittest.skipUnless(os.path.exists("/dev/fuse"), "SKIPPED: there is no /dev/fuse here")
    def test_files_in_a_mount_are_declared_too(self):
        folder = os.path.join(self.scratch, "mounted")
        os.mkdir(folder)
        words = ["--endpoint", self.endpoint, "--region", "us-east-1", "--anonymous", "--cache", self.cache]
        subprocess.run([support.BIN, "mount", "--detach", self.url, folder, *words], check=True, stdout=subprocess.DEVNULL)
        self.addCleanup(subprocess.run, [support.BIN, "umount", folder], check=True, stdout=subprocess.DEVNULL)
        loader = DataLoader([os.path.join(folder, name) for name in sorted(IMAGES)], batch_size=8, shuffle=True)
        child = os.fork()
        if child == 0:
            told = False
            try:
                told = stoker.torch.hint(loader)
                for batch in loader if told else ():
                    for path in batch:
                        with open(path, "rb") as file:
                            file.read()
                (order,) = stoker.status(cache=self.cache)["mounts"][0]["orders"]
                told = (order["source"], order["opened"], order["misses"]) == ("declared", len(IMAGES), 0)
            finally:
                os._exit(0 if told else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        status = lambda: stoker.status(cache=self.cache)["mounts"][0].get("orders", [])  # noqa: E731
        eventually("it is forgotten with its job", lambda: status() == [])


class Workers(Bed):
    content = {"%03d" % number: noise(1000 + number, number) for number in range(64)}

    def read(self, files, kind):
        context = {"num_workers": 2, "multiprocessing_context": kind}
        loader = DataLoader(files, batch_size=8, collate_fn=list, **context)
        return [content for batch in loader for content in batch]

    def test_a_number_means_one_file_in_workers_of_each_kind_and_is_refused_once_the_names_are_others(self):
        data = self.open()
        files = stoker.torch.Files(data)
        for kind in ("fork", "spawn", "forkserver"):
            self.assertEqual(self.read(files, kind), list(self.content.values()), kind)
        self.put("000a", b"in between")
        data.refresh()
        self.assertEqual(self.read(files, "fork"), list(self.content.values()), "a fork knows the names")
        for kind in ("spawn", "forkserver"):
            with self.assertRaises(OSError) as caught:
                self.read(files, kind)
            self.assertIn("make the data set anew", str(caught.exception))
        self.assertEqual(len(self.read(stoker.torch.Files(data), "spawn")), 65)


if __name__ == "__main__":
    unittest.main()
