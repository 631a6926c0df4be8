"""What is told of an epoch is what is read in it, and telling changes nothing.

Standard library and PyTorch: `python3 -m unittest discover python/tests`.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def brought(name, file):
    spec = importlib.util.spec_from_file_location(name, os.path.join(PYTHON, *file.split("/")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


order = brought("order_under_test", "stoker/order.py")
COUNT = 103


class Numbers(Dataset):
    """Each sample is its number, and what chance gave whoever read it."""

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return torch.tensor([number, int(torch.randint(1 << 30, ()))])


def samplers(generator):
    """Each kind by name: what makes the arguments of a loader."""
    data, made = Numbers(), torch.Generator().manual_seed(5) if generator else None
    return {
        "random": lambda: dict(sampler=RandomSampler(data, generator=made), batch_size=7),
        "shuffle": lambda: dict(shuffle=True, batch_size=7, drop_last=True),
        "replacement": lambda: dict(sampler=RandomSampler(data, True, 150, generator=made), batch_size=7),
        "sequential": lambda: dict(sampler=SequentialSampler(data), batch_size=7),
        "distributed": lambda: dict(sampler=DistributedSampler(data, 3, 1, seed=9), batch_size=7),
        "batch": lambda: dict(batch_sampler=BatchSampler(RandomSampler(data, generator=made), 5, True)),
        "subset": lambda: dict(sampler=SubsetRandomSampler(range(3, 90, 2), generator=made), batch_size=7),
        "weighted": lambda: dict(sampler=WeightedRandomSampler([1.0] * 50, 60, generator=made), batch_size=7),
        "no batches": lambda: dict(sampler=RandomSampler(data, generator=made), batch_size=None),
    }


def train(kind, workers, generator, look):
    """All that three epochs read, what was said of them before, and what chance gives afterwards."""
    torch.manual_seed(3)
    own = torch.Generator().manual_seed(11) if generator else None
    loader = DataLoader(
        Numbers(),
        num_workers=2 if workers else 0,
        persistent_workers=workers == "persistent",
        generator=own,
        **samplers(generator)[kind]()
    )
    read, said = [], []
    for epoch in range(3):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        if look:
            said.append(order.peek(loader))
        batches = [batch.reshape(-1, 2) for batch in loader]
        read.append(torch.cat(batches).tolist())
    after = [torch.randint(1 << 30, (4,)).tolist(), own.get_state().tolist() if own is not None else None]
    return read, said, after


class Peeking(unittest.TestCase):
    def test_what_is_seen_is_what_is_read_and_epochs_are_the_same_bit_for_bit(self):
        for kind in samplers(False):
            for workers in (None, "new", "persistent"):
                for generator in (False, True):
                    with self.subTest(kind=kind, workers=workers, generator=generator):
                        plain, _, plain_after = train(kind, workers, generator, False)
                        read, said, after = train(kind, workers, generator, True)
                        self.assertEqual(plain, read)
                        self.assertEqual(plain_after, after)
                        self.assertEqual(said, [[number for number, _ in epoch] for epoch in read])

    def test_samplers_that_might_do_more_are_not_looked_at(self):
        class Own(RandomSampler):
            def __iter__(self):
                raise AssertionError("nobody asked for it")

        class Endless(Sampler):
            def __init__(self):
                pass

            def __iter__(self):
                while True:
                    yield 0

        class OwnLoader(DataLoader):
            def _get_iterator(self):
                torch.rand(1)
                return super()._get_iterator()

        data = Numbers()
        huge = RandomSampler(data, True, 1 << 40)
        for loader in (
            DataLoader(data, sampler=Own(data)),
            DataLoader(data, sampler=Endless()),
            DataLoader(data, batch_sampler=BatchSampler(Own(data), 2, False)),
            DataLoader(data, sampler=[3, 1, 2]),
            DataLoader(data, sampler=huge),
            OwnLoader(data, shuffle=True),
        ):
            self.assertIsNone(order.peek(loader))


class Files(unittest.TestCase):
    """What a data set has is told by the names that the node knows."""

    def setUp(self):
        self.asked = []

        def ask(at, method, path, body):
            text = json.loads(body) if body else None
            self.asked.append((method, path, text))
            self.assertEqual(at, "/socket")
            if method == "GET":
                return {"mounts": [{"path": self.root}]}
            return None if "expected" in text and self.refuses else {"files": 1}

        self.refuses, self.sockets = False, [("/another's", 8), ("/socket", 7)]
        self.root = os.path.realpath(tempfile.mkdtemp())
        self.paths = [os.path.join(self.root, "train", c, "%d.jpg" % at) for c in "ab" for at in range(4)]
        for path in self.paths:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").close()
        self.kept = order._ask, order._mounts, order._sockets
        order._ask, order._mounts, order._sockets = ask, lambda: [(self.root, 7)], lambda: self.sockets

    def tearDown(self):
        order._ask, order._mounts, order._sockets = self.kept
        subprocess.run(["rm", "-rf", self.root], check=True)

    def loader(self, **has):
        data = Numbers()
        vars(data).update(has)
        return DataLoader(data, sampler=SubsetRandomSampler([5, 2, 7]), batch_size=2)

    def said(self, loader):
        self.asked.clear()
        torch.manual_seed(1)
        told = order.tell(loader)
        torch.manual_seed(1)
        self.assertEqual(told, bool(self.asked))
        return order.peek(loader), [text for method, _, text in self.asked if method == "POST"]

    def test_numbers_are_told_with_what_they_rely_on(self):
        for has in (
            {"samples": [(path, 0) for path in self.paths]},
            {"files": self.paths},
            {"paths": tuple(self.paths)},
            {"imgs": [os.path.relpath(path, self.root) for path in self.paths], "root": self.root},
        ):
            numbers, (text,) = self.said(self.loader(**has))
            self.assertEqual((text["path"], text["numbers"]), (self.root + "/train", numbers))
            self.assertEqual(text["expected"]["files"], 8)
            self.assertIn({"number": 6, "name": "b/2.jpg"}, text["expected"]["names"])
            self.assertEqual(text["source"], "peeked")

    def test_where_the_node_numbers_them_otherwise_they_are_told_by_name(self):
        self.refuses = True
        numbers, (_, text) = self.said(self.loader(samples=[(path, 0) for path in self.paths]))
        self.assertEqual(text["list"], [self.paths[at][len(self.root + "/train/") :] for at in numbers])

    def test_a_subset_of_a_subset_and_a_plain_list_have_files_too(self):
        data = Numbers()
        data.samples = [(path, 0) for path in self.paths]
        inner = Subset(Subset(data, [7, 6, 5, 4]), [3, 1])
        _, (text,) = self.said(DataLoader(inner, batch_size=2))
        self.assertEqual(text["numbers"], [4, 6])
        _, (text,) = self.said(DataLoader(self.paths, shuffle=True))
        self.assertEqual(sorted(text["numbers"]), list(range(8)))

    def test_nothing_is_told_of_files_elsewhere_or_of_none(self):
        for has in ({}, {"samples": []}, {"samples": [(1, 2)]}, {"samples": [("/etc/hostname", 0)]}):
            self.assertEqual(self.said(self.loader(**has))[1], [])
        self.sockets = self.sockets[:1]
        self.assertEqual(self.said(self.loader(files=self.paths))[1], [])
        order._mounts = lambda: []
        self.assertEqual(self.said(self.loader(files=self.paths))[1], [])


class Brought(unittest.TestCase):
    """As `stoker run` brings it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.ours, self.users = (os.path.join(self.folder, name) for name in ("ours", "users"))
        os.mkdir(self.ours), os.mkdir(self.users)
        for name, file in (("sitecustomize.py", "run/sitecustomize.py"), ("_stoker_order.py", "stoker/order.py")):
            with open(os.path.join(PYTHON, *file.split("/"))) as text, open(os.path.join(self.ours, name), "w") as out:
                out.write(text.read())

    def tearDown(self):
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def python(self, code, **more):
        path = os.pathsep.join((self.ours, self.users))
        environment = dict(os.environ, PYTHONPATH=path, **more)
        done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_the_user_s_own_sitecustomize_runs_as_if_this_one_weren_t_there(self):
        with open(os.path.join(self.users, "sitecustomize.py"), "w") as out:
            out.write("import sys; print('users', __name__, __file__)")
        see = "import sitecustomize, sys; print(sitecustomize.__file__, 'torch' in sys.modules)"
        own = os.path.join(self.users, "sitecustomize.py")
        self.assertEqual(self.python(see), (0, "users sitecustomize %s\n%s False\n" % (own, own), ""))
        self.assertNotIn(self.ours, self.python("import sys; print(sys.path)")[1])

    def test_its_errors_are_python_s_to_tell(self):
        with open(os.path.join(self.users, "sitecustomize.py"), "w") as out:
            out.write("1 / 0")
        code, said, wrong = self.python("print('runs')")
        self.assertEqual((code, said), (0, "runs\n"))
        self.assertIn("Error in sitecustomize", wrong)
        self.assertIn("ZeroDivisionError", wrong)

    def test_torch_s_loader_tells_unless_it_is_switched_off(self):
        see = "from torch.utils.data import DataLoader as D; print(getattr(D.__iter__, '_stoker', False), list(D([1, 2])))"
        on, off = self.python(see), self.python(see, STOKER_HINT="off")
        told = "[tensor([1]), tensor([2])]\n"
        self.assertEqual((on, off), ((0, "True " + told, ""), (0, "False " + told, "")))

    def test_what_goes_wrong_in_it_is_nobody_else_s_trouble(self):
        with open(os.path.join(self.ours, "_stoker_order.py"), "w") as out:
            out.write("1 / 0")
        self.assertEqual(self.python("import torch.utils.data; print(1)"), (0, "1\n", ""))
        os.remove(os.path.join(self.ours, "_stoker_order.py"))
        self.assertEqual(self.python("import torch.utils.data; print(1)"), (0, "1\n", ""))


if __name__ == "__main__":
    unittest.main()
