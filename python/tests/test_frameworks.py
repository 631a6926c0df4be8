"""The rows of docs/python.md, each with the library itself: what it reads by Stoker is what the bucket has.

    make frameworks

Which of them are here is said: those that are not are skipped.
"""

import asyncio
import importlib.util
import io
import os
import tarfile
import unittest
from typing import Any, Dict, List, Optional

from support import Bed, noise

import stoker
import stoker.torch


def png(number: int) -> bytes:
    """A picture whose pixels tell its number."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 255 - number, 7)).save(out, "PNG")
    return out.getvalue()


def shard(first: int) -> bytes:
    """A tar of ten samples, as webdataset names them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number in range(first, first + 10):
            for ending, content in (("bin", noise(3000 + number, number)), ("cls", b"%d" % (number % 3))):
                member = tarfile.TarInfo("%06d.%s" % (number, ending))
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def table(rows: range) -> bytes:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"number": list(rows), "text": ["row %d" % row for row in rows]}), out)
    return out.getvalue()


def is_here(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def needs(*names: str) -> Any:
    missing = [name for name in names if not is_here(name)]
    # `make frameworks` has installed all but DALI.
    assert not os.environ.get("STOKER_ALL_FRAMEWORKS") or set(missing) <= {"nvidia.dali"}, missing
    return unittest.skipIf(missing, "SKIPPED: there is no %s here" % " nor ".join(missing))


def sums(loader: Any, seen: Optional[List[int]] = None) -> int:
    """How many pictures came, each with the label and the pixels of its number, and none that had come before."""
    seen = [] if seen is None else seen
    for pictures, labels in loader:
        for picture, label in zip(pictures, labels):
            number = int(picture[0, 0, 0])
            assert int(label) == number % 2 and int(picture[1, 7, 7]) == 255 - number, (number, int(label))
            seen.append(number)
    assert len(set(seen)) == len(seen), "twice"
    return len(seen)


def pixels(picture: Any) -> Any:
    import numpy
    import torch

    return torch.from_numpy(numpy.array(picture)).permute(2, 0, 1)


class Rows(Bed):
    NAMES = ["train/%s/%03d.png" % (("even", "odd")[number % 2], number) for number in range(60)]

    def setUp(self) -> None:
        super().setUp()
        # Libraries keep what they make in the home folder, which is this test's.
        self.given("HF_HOME", os.path.join(self.scratch, "hf"))

    def pictures(self) -> stoker.torch.ImageFolder:
        for number, name in enumerate(self.NAMES):
            self.put(name, png(number))
        return stoker.torch.ImageFolder(stoker.open(self.url + "/train", **self.reach), pixels)

    @needs("torch", "PIL", "numpy")
    def test_torch(self) -> None:
        from torch.utils.data import DataLoader

        images = self.pictures()
        for workers in (0, 4):
            self.assertEqual(sums(DataLoader(images, batch_size=16, shuffle=True, num_workers=workers)), 60)

    @needs("torchdata", "PIL", "numpy")
    def test_torchdata_s_stateful_loader_goes_on_where_it_was(self) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        images = self.pictures()
        for workers in (0, 3):
            whole = StatefulDataLoader(images, batch_size=8, num_workers=workers)
            begun = iter(whole)
            first = [next(begun) for _ in range(3)]
            kept = whole.state_dict()
            del begun
            rest = StatefulDataLoader(images, batch_size=8, num_workers=workers)
            rest.load_state_dict(kept)
            self.assertEqual(sums(first + list(rest)), 60)

    @needs("lightning", "PIL", "numpy")
    def test_lightning(self) -> None:
        import lightning
        import torch
        from torch.utils.data import DataLoader

        images, seen = self.pictures(), [[], []]  # type: Any

        class Model(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch: Any, _: int) -> Any:
                sums([batch], seen[self.current_epoch])
                return self.layer(batch[0].float().mean().reshape(1, 1)).sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=1e-9)

            def train_dataloader(self) -> Any:
                return DataLoader(images, batch_size=7, shuffle=True, num_workers=2)

        quiet: Dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=self.scratch, **quiet).fit(Model())
        self.assertEqual([len(epoch) for epoch in seen], [60, 60])

    @needs("datasets", "pyarrow", "fsspec")
    def test_hf_datasets_by_name_and_by_path(self) -> None:
        import fsspec
        from datasets import load_dataset

        self.put("a.parquet", table(range(500)))
        self.put("b.parquet", table(range(500, 900)))
        fsspec.register_implementation("stoker", "stoker.fsspec.FileSystem", clobber=True)
        cached = os.path.join(self.scratch, "made")
        one = load_dataset(
            "parquet", data_files="stoker://s3://bucket/a.parquet", split="train", cache_dir=cached, storage_options=dict(self.reach)
        )
        self.assertEqual(one["number"][:], list(range(500)))
        data = self.open()
        data.load()
        both = load_dataset("parquet", data_files=[data.path(name) for name in data.list()], split="train", cache_dir=cached)
        self.assertEqual((sorted(both["number"][:]), both[899]["text"]), (list(range(900)), "row 899"))

    @needs("webdataset")
    def test_webdataset(self) -> None:
        import webdataset

        for first in range(0, 40, 10):
            self.put("shards/%04d.tar" % first, shard(first))
        data = self.open()
        data.load()
        shards = [data.path("shards/" + name) for name in data.list("shards")]
        found = {int(one["__key__"]): one for one in webdataset.WebDataset(shards, shardshuffle=False)}
        self.assertEqual(len(found), 40)
        for number, one in found.items():
            self.assertEqual((one["bin"], one["cls"]), (noise(3000 + number, number), b"%d" % (number % 3)))

    @needs("ray", "pyarrow")
    def test_ray(self) -> None:
        import ray
        import ray.data

        for number in range(200):
            self.put("%03d.bin" % number, noise(100 + number, number))
        data = self.open()
        # Its workers are new processes; installed by pip, it would be found.
        self.given("PYTHONPATH", os.path.dirname(os.path.dirname(stoker.__file__)))
        ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
        self.addCleanup(ray.shutdown)
        read = ray.data.from_items(data.list()).map_batches(
            lambda batch: {"item": batch["item"], "bytes": data.read_many(list(batch["item"]))}, batch_size=64
        )
        found = {one["item"]: one["bytes"] for one in read.take_all()}
        self.assertEqual(found, {"%03d.bin" % number: noise(100 + number, number) for number in range(200)})

    @needs("nvidia.dali")
    def test_dali(self) -> None:
        from nvidia.dali import fn, pipeline_def

        self.pictures()
        data = self.open()
        data.load()
        names = [name for name in data.list() if name.startswith("train/")]

        @pipeline_def(batch_size=15, num_threads=2, device_id=None)
        def pictures() -> Any:
            content, labels = fn.readers.file(files=[data.path(name) for name in names], labels=list(range(len(names))), random_shuffle=True)
            return content, labels

        made, seen = pictures(), {}
        made.build()
        for _ in range(4):
            contents, labels = made.run()
            seen.update({int(labels.at(at)[0]): bytes(contents.at(at)) for at in range(15)})
        self.assertEqual(seen, {at: data.read(name) for at, name in enumerate(names)})

    def test_asyncio(self) -> None:
        content = {"%02d.bin" % number: noise(5000 + number, number) for number in range(90)}
        for name, one in content.items():
            self.put(name, one)
        data, names = self.open(), sorted(content)

        async def read() -> Any:
            return await asyncio.gather(*(asyncio.to_thread(data.read_many, names[at : at + 9]) for at in range(0, 90, 9)))

        found = [one for part in asyncio.run(read()) for one in part]
        self.assertEqual(found, [content[name] for name in names])


if __name__ == "__main__":
    unittest.main()
