"""A workload through PyTorch: `DataLoader` with worker processes, `DistributedSampler`, prefetch.

It doesn't train and needs no accelerator. Without `decode` only the figures of a batch cross from worker to trainer, as in
DLIO; with it samples are decoded, cut to what MLPerf's models take, and cross as tensors.

Invariant: the order of an epoch is that of `DistributedSampler` with the job's seed, over all samples or over those of a
fixed partition, or of shards through a shuffle buffer.
"""

import functools
import io
import itertools
import multiprocessing
import os
import random
import tarfile
import time

import common

try:
    import numpy
    import torch
    from torch.utils.data import DataLoader, IterableDataset, Subset, get_worker_info
    from torch.utils.data.distributed import DistributedSampler

    MISSING = None
except ImportError as error:
    MISSING, IterableDataset = error, object

# What the models take: ResNet-50's picture, 3D U-Net's patch.
PICTURE_SIDE = 224
PATCH_SIDE = 128


def decode(kind, content):
    if kind == "jpeg":
        from PIL import Image

        with Image.open(io.BytesIO(content)) as picture:
            picture = picture.convert("RGB").resize((PICTURE_SIDE, PICTURE_SIDE))
            return torch.from_numpy(numpy.array(picture))
    if kind == "npz":
        with numpy.load(io.BytesIO(content)) as archive:
            volume = archive["x"]
        cut = tuple(slice(0, min(PATCH_SIDE, side)) if side > 1 else slice(None) for side in volume.shape[-3:])
        return torch.from_numpy(numpy.ascontiguousarray(volume[(..., *cut)]))
    if kind == "npy":
        return torch.from_numpy(numpy.load(io.BytesIO(content)))
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def end_worker(parent, _number):
    common.end_with(parent)


class Maker:
    """Turns the content of samples into what a batch hands over."""

    def __init__(self, job):
        self.job = job

    def one(self, content_of):
        """(tensor or nothing, bytes, seconds of reading, seconds of decoding)"""
        began = time.monotonic()
        content = content_of()
        read = time.monotonic()
        made = decode(self.job["format"], content) if self.job["decode"] and content else None
        return made, len(content), read - began, time.monotonic() - read


def collate(made):
    account = common.Account()
    for _, size, reading, decoding in made:
        account.samples += 1
        account.bytes += size
        account.read += reading
        account.decode += decoding
    return [tensor for tensor, _, _, _ in made if tensor is not None], account.figures()


class Samples:
    """Any sample by its number."""

    def __init__(self, job, samples):
        self.samples, self.maker = samples, Maker(job)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        return self.maker.one(lambda: common.read(self.samples[number]))


def shard_contents(path, size, kind):
    """The samples of one shard, read from end to end, each as a function that gives its content."""
    if kind == "tfrecord":
        for at, length in common.records_of(path, size):
            yield lambda at=at, length=length: common.read((path, at, length))
    elif kind == "tar":
        # The members of a sample lie side by side and share the name up to its first dot, as WebDataset has them.
        stem = lambda member: os.path.join(os.path.dirname(member.name), os.path.basename(member.name).split(".")[0])
        with tarfile.open(path, "r|") as shard:
            files = (member for member in shard if member.isfile())
            for _, members in itertools.groupby(files, stem):
                yield lambda members=members: b"".join(shard.extractfile(member).read() for member in members)
    else:
        yield lambda: common.read((path, 0, size))


class Shards(IterableDataset):
    """Shards in an order of each epoch, dealt to accelerators and workers, each through its part of the shuffle buffer."""

    def __init__(self, job, accelerator, turns):
        self.job, self.accelerator, self.turns, self.maker = job, accelerator, turns, Maker(job)
        self.files = common.files_of(job)
        # Workers live from epoch to epoch, so that what they are told must be shared.
        self.number = multiprocessing.Value("Q", 0)

    def __iter__(self):
        worker = get_worker_info()
        workers, own = (worker.num_workers, worker.id) if worker else (1, 0)
        return itertools.islice(self.shuffled(workers, own), self.turns.count(own) * self.job["batch"])

    def shuffled(self, workers, own):
        """All samples of a worker's shards, each once, through its part of the buffer."""
        job, number, files = self.job, self.number.value, list(self.files)
        if job["order"] == "shards" and job["partition"] == "fresh":
            random.Random(job["seed"] + number).shuffle(files)
        # As `split_by_node` and `split_by_worker` of WebDataset deal them.
        mine = files[self.accelerator :: job["replicas"]][own::workers]
        if job["order"] == "shards" and job["partition"] == "fixed":
            random.Random(job["seed"] + number).shuffle(mine)
        chance = random.Random(hash((job["seed"], number, self.accelerator, own)))
        room, buffer = (job["shuffle_buffer"] or 0) // workers, []
        for name, size in mine:
            for content_of in shard_contents(os.path.join(job["folder"], name), size, job["format"]):
                buffer.append(self.maker.one(content_of))
                if len(buffer) > room:
                    chosen = chance.randrange(len(buffer))
                    buffer[chosen], buffer[-1] = buffer[-1], buffer[chosen]
                    yield buffer.pop()
        chance.shuffle(buffer)
        yield from buffer


class Cut:
    """The first so many of a sampler."""

    def __init__(self, sampler, samples):
        self.sampler, self.samples = sampler, samples

    def __len__(self):
        return self.samples

    def __iter__(self):
        return itertools.islice(iter(self.sampler), self.samples)


class Loader:
    def __init__(self, job, accelerator):
        torch.set_num_threads(1)
        workers = job["workers"]
        options = {
            "batch_size": job["batch"],
            "num_workers": workers,
            "collate_fn": collate,
            "drop_last": True,
            "persistent_workers": workers > 0,
        }
        if workers > 0:
            # PyTorch's own choice on Linux, which processes that were started afresh don't inherit.
            options["multiprocessing_context"] = "fork"
            options["worker_init_fn"] = functools.partial(end_worker, os.getpid())
            # Batches of one accelerator that may be ready or on their way, over all workers.
            options["prefetch_factor"] = max(1, -(-job["prefetch_batches"] // workers))
        in_shards = job["format"] == "tar" or job["format"] == "tfrecord" and job["order"] in ("shards", "sequential")
        if in_shards and job["folder"] is not None:
            files, parties = common.files_of(job), job["replicas"] * max(1, workers)
            if len(files) < parties:
                what = f"{len(files)} shards can't be dealt to {parties} workers"
                raise common.Refusal(what, job["folder"], "fewer accelerators or workers, or more shards")
            self.sampler = None
            turns = common.turns_of(job, common.fewest_files(job, files), max(1, workers))
            self.steps = len(turns)
            self.set = Shards(job, accelerator, turns)
            self.loader = DataLoader(self.set, **options)
        else:
            self.set = Samples(job, common.samples_of(job))
            shuffle, among = job["order"] != "sequential", (job["replicas"], accelerator)
            if job["partition"] == "fixed":
                each = -(-len(self.set) // job["replicas"])
                own = range(accelerator * each, (accelerator + 1) * each)
                self.set, among = Subset(self.set, [number % len(self.set) for number in own]), (1, 0)
            self.sampler = DistributedSampler(self.set, *among, shuffle=shuffle, seed=job["seed"])
            self.steps = common.steps_of(job, len(self.sampler))
            cut = Cut(self.sampler, self.steps * job["batch"])
            self.loader = DataLoader(self.set, sampler=cut, **options)

    def batches(self, number):
        if self.sampler is not None:
            self.sampler.set_epoch(number)
        else:
            self.set.number.value = number
        for _, figures in self.loader:
            yield figures

    def close(self):
        self.loader = None


if __name__ == "__main__":
    common.main(Loader, MISSING)
