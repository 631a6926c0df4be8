"""A workload through TensorFlow: `tf.data` with parallel reads, a shuffle buffer, batches and prefetch.

It doesn't train and needs no accelerator. Files that hold one sample are read whole by `tf.io.read_file`; TFRecord shards
are interleaved as the guides of TensorFlow do it. Random reads of single records, Parquet and tar aren't tf.data's.

Invariant: the order of files in an epoch is a function of (seed, epoch); each accelerator has its own shard of the files.
"""

import os
import random
import time

import common

try:
    # Read before the import, which prints a page of warnings otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow

    MISSING = None
except ImportError as error:
    MISSING = error

PICTURE_SIDE = 224


class Loader:
    def __init__(self, job, accelerator):
        if job["format"] not in ("jpeg", "npz", "npy", "raw", "tfrecord") or job["order"] == "random":
            what = f"tf.data reads no {job['format']} samples in {job['order']} order"
            raise common.Refusal(what, job["folder"] or "null:", "use --loader torch, or leave --loader out")
        if job["format"] != "tfrecord" and job["samples_per_file"] != 1:
            raise common.Refusal("tf.data reads whole files", job["format"], "use --loader torch, or leave --loader out")
        self.job, self.accelerator = job, accelerator
        self.files = [name for name, _ in common.files_of(job)]
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)
        tensorflow.config.threading.set_inter_op_parallelism_threads(max(1, job["workers"]))
        self.steps = common.steps_of(job, common.fewest_files(job, self.files) * job["samples_per_file"])

    def paths(self, number):
        job, files = self.job, list(self.files)
        chance = random.Random(job["seed"] + number)
        if job["order"] != "sequential" and job["partition"] == "fresh":
            chance.shuffle(files)
        mine = files[self.accelerator :: job["replicas"]]
        if job["order"] != "sequential" and job["partition"] == "fixed":
            chance.shuffle(mine)
        return [os.path.join(job["folder"], name) for name in mine] if job["folder"] is not None else mine

    def batches(self, number):
        job, data = self.job, tensorflow.data
        workers = max(1, job["workers"])
        paths = data.Dataset.from_tensor_slices(self.paths(number))
        if job["folder"] is None:
            samples = paths.repeat(job["samples_per_file"]).map(lambda path: "")
        elif job["format"] == "tfrecord":
            samples = paths.interleave(
                data.TFRecordDataset, cycle_length=workers, num_parallel_calls=workers, deterministic=False
            )
            if job["shuffle_buffer"]:
                samples = samples.shuffle(job["shuffle_buffer"], seed=job["seed"] + number)
        else:
            samples = paths.map(tensorflow.io.read_file, num_parallel_calls=workers, deterministic=False)
        samples = samples.map(self.sample, num_parallel_calls=workers, deterministic=False)
        batches = samples.batch(job["batch"], drop_remainder=True).take(self.steps)
        for made in batches.prefetch(max(1, job["prefetch_batches"])):
            # How long tf.data read is not told: the whole wait is the loader's.
            sizes = made[0]
            yield int(sizes.shape[0]), int(tensorflow.reduce_sum(sizes)), 0.0, 0.0, time.monotonic()

    def sample(self, content):
        size = tensorflow.cast(tensorflow.strings.length(content), tensorflow.int64)
        if not self.job["decode"] or self.job["format"] != "jpeg" or self.job["folder"] is None:
            return (size,)
        picture = tensorflow.io.decode_jpeg(content, channels=3)
        return size, tensorflow.cast(tensorflow.image.resize(picture, (PICTURE_SIDE, PICTURE_SIDE)), tensorflow.uint8)

    def close(self):
        self.files = []


if __name__ == "__main__":
    common.main(Loader, MISSING)
