"""A workload through NVIDIA DALI, its pipeline on processors alone: `readers.file` and `readers.tfrecord`.

It doesn't train and needs no GPU. Formats that DALI has no reader for are refused, not read in another way.

Invariant: each accelerator reads its own shard of the files, in an order that DALI draws from the job's seed.
"""

import os
import tempfile
import time

import common

try:
    from nvidia.dali import fn, pipeline_def, types

    MISSING = None
except ImportError as error:
    MISSING = error

PICTURE_SIDE = 224


class Loader:
    def __init__(self, job, accelerator):
        if job["format"] not in ("jpeg", "tfrecord", "raw", "npz", "npy") or job["folder"] is None:
            what = f"DALI has no reader for {job['format']} samples in {job['folder'] or 'null:'}"
            raise common.Refusal(what, "--loader dali", "use --loader torch, or leave --loader out")
        if job["format"] != "tfrecord" and job["samples_per_file"] != 1:
            raise common.Refusal("DALI's reader takes whole files", job["format"], "use --loader torch")
        self.job = job
        self.scratch = tempfile.TemporaryDirectory(prefix="stoker-dali-")
        files = common.files_of(job)
        self.steps = common.steps_of(job, len(files) * job["samples_per_file"] // job["replicas"])
        self.pipeline = self.built(files, accelerator)

    def built(self, files, accelerator):
        job = self.job
        paths = [os.path.join(job["folder"], name) for name, _ in files]
        share = {
            "shard_id": accelerator,
            "num_shards": job["replicas"],
            "random_shuffle": job["order"] != "sequential",
            "stick_to_shard": job["partition"] == "fixed",
            # Where nothing is said, DALI's own 1,024.
            **({"initial_fill": job["shuffle_buffer"]} if job["shuffle_buffer"] else {}),
            "prefetch_queue_depth": max(1, job["prefetch_batches"]),
            "name": "Reader",
        }
        indexes = self.indexes(files) if job["format"] == "tfrecord" else []

        @pipeline_def(
            batch_size=job["batch"], num_threads=max(1, job["workers"]), device_id=None, seed=job["seed"] & 0x7FFF_FFFF
        )
        def pipeline():
            if job["format"] == "tfrecord":
                from nvidia.dali import tfrecord

                feature = {"image": tfrecord.FixedLenFeature((), tfrecord.string, "")}
                content = fn.readers.tfrecord(path=paths, index_path=indexes, features=feature, **share)["image"]
            else:
                content, _ = fn.readers.file(files=paths, labels=[0] * len(paths), **share)
            size = fn.shapes(content, dtype=types.INT64)
            if job["decode"] and job["format"] == "jpeg":
                picture = fn.decoders.image(content, device="cpu", output_type=types.RGB)
                return size, fn.resize(picture, resize_x=PICTURE_SIDE, resize_y=PICTURE_SIDE)
            return size

        made = pipeline()
        made.build()
        return made

    def indexes(self, files):
        """DALI wants a file beside each shard that says where its records begin, and how long they are."""
        made = []
        for number, (name, size) in enumerate(files):
            path = os.path.join(self.scratch.name, f"{number}.idx")
            with open(path, "w") as index:
                for at, length in common.records_of(os.path.join(self.job["folder"], name), size):
                    index.write(f"{at - 12} {length + 16}\n")
            made.append(path)
        return made

    def batches(self, number):
        for _ in range(self.steps):
            sizes = self.pipeline.run()[0].as_array()
            # How long DALI read is not told: the whole wait is the loader's.
            yield len(sizes), int(sizes.sum()), 0.0, 0.0, time.monotonic()

    def close(self):
        self.scratch.cleanup()


if __name__ == "__main__":
    common.main(Loader, MISSING)
