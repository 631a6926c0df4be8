"""The file system of fsspec by fsspec's own suite, and by the libraries that read through it.

    STOKER_BIN=target/release/stoker target/tools/programs/bin/python -m pytest python/tests/test_fsspec.py -rs

Of fsspec's suite each class is run or stands in SKIPPED with its reason; a new one of a later fsspec is neither, and fails.
"""

import errno
import inspect
import io
import os
import shutil

import fsspec
import fsspec.tests.abstract as abstract
import pytest
from fsspec.implementations.local import LocalFileSystem
from support import Bed, noise

from stoker.fsspec import FileSystem

WRITES = "a data set can't be written"

#: By class. Single tests that want empty folders leave them out by themselves: a bucket has none.
SKIPPED = {
    "AbstractCopyTests": WRITES,
    "AbstractPutTests": WRITES,
    "AbstractPipeTests": WRITES,
    "AbstractOpenTests": WRITES,
}


class _Bucket(Bed):
    """As fixtures want it, which are no cases of unittest."""

    __test__ = False
    content = {"about": b"a bucket in which there is nothing can't be listed"}

    def runTest(self):
        pass


@pytest.fixture(scope="module")
def bucket():
    bucket = _Bucket()
    try:
        bucket.setUp()
        yield bucket
    finally:
        bucket.doCleanups()


@pytest.fixture
def fs(bucket):
    fs = FileSystem(root=bucket.url, skip_instance_cache=True, **bucket.reach)
    yield fs
    fs.data.close()


class Scenarios(abstract.AbstractFixtures):
    """What the suite makes by the file system, made in the bucket and listed."""

    @pytest.fixture
    def fs(self, fs, bucket, monkeypatch):
        def touch(path):
            bucket.put(path, b"")
            fs.data.refresh()

        # One test makes its own file.
        monkeypatch.setattr(fs, "mkdir", lambda path: None)
        monkeypatch.setattr(fs, "touch", touch)
        return fs

    @pytest.fixture
    def fs_path(self):
        return "scenario"

    @pytest.fixture
    def supports_empty_directories(self):
        return False

    def _in_bucket(self, make, bucket, fs):
        folder = os.path.join(bucket.bucket, "scenario")
        source = make(LocalFileSystem(auto_mkdir=True), os.path.join, folder)
        fs.data.refresh()
        yield os.path.relpath(source, bucket.bucket)
        shutil.rmtree(folder)
        fs.data.refresh()

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, bucket, fs):
        yield from self._in_bucket(self._bulk_operations_scenario_0, bucket, fs)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, bucket, fs):
        yield from self._in_bucket(self._glob_edge_cases_files, bucket, fs)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, bucket, fs):
        yield from self._in_bucket(self._dir_and_file_with_same_name_prefix, bucket, fs)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, bucket, fs):
        yield from self._in_bucket(self._10_files_with_hashed_names, bucket, fs)


class TestGet(Scenarios, abstract.AbstractGetTests):
    pass


@pytest.mark.parametrize("name", SKIPPED)
def test_skipped(name):
    assert inspect.isclass(getattr(abstract, name))
    pytest.skip("%s: %s" % (name, SKIPPED[name]))


def test_each_class_of_the_suite_is_run_or_stands_in_the_list():
    suites = {name for name, one in vars(abstract).items() if inspect.isclass(one) and name.endswith("Tests")}
    assert suites - set(SKIPPED) == {"AbstractGetTests"}


def test_what_would_write_is_refused(fs, bucket):
    bucket.put("there", b"as it was")
    fs.data.refresh()
    for refused in (
        lambda: fs.open("there", "wb"),
        lambda: fs.open("there", "ab"),
        lambda: fs.pipe("there", b"other"),
        lambda: fs.rm("there"),
        lambda: fs.mv("there", "elsewhere"),
        lambda: fs.touch("there"),
        lambda: fs.mkdir("new"),
        lambda: fs.makedirs("new/deep"),
        lambda: fs.copy("there", "elsewhere"),
    ):
        with pytest.raises(OSError) as error:
            refused()
        assert error.value.errno == errno.EROFS
    assert fs.cat("there") == b"as it was"


# Libraries. Each reads the same files by the file system, cold and warm, as from the folder of the bucket.


@pytest.fixture
def read(bucket, fs):
    """Has files made in the bucket by a function of a folder, and what another reads of a file there compared."""

    def agrees(make, reads):
        folder = os.path.join(bucket.bucket, "library")
        os.makedirs(folder)
        make(folder)
        for found in LocalFileSystem().find(folder):
            os.utime(found, (1_600_000_000, 1_600_000_000))
        fs.data.refresh()
        expected = reads(LocalFileSystem(), folder)
        for _ in range(2):
            assert reads(fs, "library") == expected

    yield agrees
    shutil.rmtree(os.path.join(bucket.bucket, "library"), ignore_errors=True)


def tables(folder):
    import pyarrow
    import pyarrow.parquet

    for part in range(2):
        numbers = range(part * 200_000, (part + 1) * 200_000)
        columns = {"number": list(numbers), "text": ["%d" % (one * 2654435761 % 2**32) for one in numbers]}
        pyarrow.parquet.write_table(pyarrow.table(columns), "%s/%d.parquet" % (folder, part), row_group_size=20_000)


def test_pyarrow(read):
    dataset = pytest.importorskip("pyarrow.dataset", reason="SKIPPED: there is no pyarrow here")

    def reads(fs, folder):
        found = dataset.dataset(folder, filesystem=fs, format="parquet")
        table = found.to_table(filter=dataset.field("number") > 150_000)
        return table.num_rows, hash(tuple(table.column("text").to_pylist()))

    read(tables, reads)


def test_pandas(read, bucket):
    pandas = pytest.importorskip("pandas", reason="SKIPPED: there is no pandas here")
    pytest.importorskip("pyarrow", reason="SKIPPED: there is no pyarrow here")
    fsspec.register_implementation("stoker", FileSystem, clobber=True)

    def make(folder):
        tables(folder)
        pandas.DataFrame({"a": range(1000), "b": ["x%d" % one for one in range(1000)]}).to_csv(folder + "/table.csv")

    def reads(fs, folder):
        is_ours = isinstance(fs, FileSystem)
        at = "stoker://s3://bucket/library" if is_ours else folder
        options = {"storage_options": bucket.reach} if is_ours else {}
        frame = pandas.read_parquet(at + "/1.parquet", columns=["text"], **options)
        table = pandas.read_csv(at + "/table.csv", **options)
        return int(pandas.util.hash_pandas_object(frame).sum()), table.to_csv()

    read(make, reads)


def test_zarr(read):
    zarr = pytest.importorskip("zarr", reason="SKIPPED: there is no zarr here")
    numpy = pytest.importorskip("numpy", reason="SKIPPED: there is no numpy here")

    def make(folder):
        array = zarr.create_array(folder + "/array", shape=(700, 500), chunks=(64, 64), dtype="int32")
        array[:] = numpy.arange(350_000, dtype="int32").reshape(700, 500) ^ 0x5A5A

    def reads(fs, folder):
        if isinstance(fs, FileSystem):
            from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

            store = zarr.storage.FsspecStore(AsyncFileSystemWrapper(fs, asynchronous=True), read_only=True, path=folder + "/array")
        else:
            store = folder + "/array"
        array = zarr.open_array(store, mode="r")
        return array[:].tobytes(), array[100:131, 7:300:3].tobytes()

    read(make, reads)


def test_h5py(read):
    h5py = pytest.importorskip("h5py", reason="SKIPPED: there is no h5py here")
    numpy = pytest.importorskip("numpy", reason="SKIPPED: there is no numpy here")

    def make(folder):
        values = numpy.frombuffer(noise(24_000_000, 5), dtype="uint8").reshape(2400, 10_000)
        with h5py.File(folder + "/file.h5", "w") as file:
            file.create_dataset("plain", data=values)
            file.create_dataset("packed", data=values[:300], chunks=(30, 1000), compression="gzip")

    def reads(fs, folder):
        with fs.open(folder + "/file.h5", "rb") as opened, h5py.File(opened, "r") as file:
            found = file["packed"][17:290:9].tobytes(), file["plain"][1200:1210].tobytes(), file["plain"][:].tobytes()
        return [hash(one) for one in found]

    read(make, reads)


def test_safetensors(read, bucket):
    arrays = pytest.importorskip("safetensors.numpy", reason="SKIPPED: there is no safetensors here")
    numpy = pytest.importorskip("numpy", reason="SKIPPED: there is no numpy here")
    fsspec.register_implementation("stoker", FileSystem, clobber=True)

    def make(folder):
        some = {"layer.%d" % at: numpy.full((256, 1024), at, dtype="float32") for at in range(24)}
        arrays.save_file(some, folder + "/model.safetensors")

    def reads(fs, folder):
        at = folder + "/model.safetensors"
        loaded = arrays.load(fs.cat_file(at))
        is_ours = isinstance(fs, FileSystem)
        if is_ours:
            fs.data.load(names=[at])
        path = fsspec.open_local("stoker://" + at, root=bucket.url, **bucket.reach) if is_ours else at
        mapped = arrays.load_file(path)
        return [(name, hash(mapped[name].tobytes()), hash(loaded[name].tobytes())) for name in sorted(loaded)]

    read(make, reads)


def test_names_that_are_found_below_a_url_lead_back_to_this_file_system(bucket):
    """As HF datasets does, which puts the protocol before what has none."""
    bucket.put("back/a.csv", b"1,2")
    fsspec.register_implementation("stoker", FileSystem, clobber=True)
    options = dict(bucket.reach, skip_instance_cache=True)
    found, path = fsspec.url_to_fs("stoker://s3://bucket/back/*.csv", **options)
    found.data.refresh()
    (name,) = found.glob(path)
    again, same = fsspec.url_to_fs(name if "://" in name else "stoker://" + name, **options)
    assert isinstance(again, FileSystem)
    assert again.cat(same) == found.cat(name) == b"1,2"
    assert found.ls("stoker://s3://bucket/back", detail=False) == [name]
    assert found.ls("s3://bucket/back", detail=False) == ["s3://bucket/back/a.csv"]
    found.data.close()
    again.data.close()


def test_a_file_that_is_not_complete_has_no_path_and_says_what_gives_it_one(fs, bucket):
    bucket.put("cold", noise(100_000_000, 3))
    fs.data.refresh()
    with fs.open("cold") as file:
        assert getattr(file, "name", None) is None
        with pytest.raises(AttributeError, match="load"):
            file.name


def test_bytes_in_parts(read):
    """As whoever seeks in a file that is not complete here yet."""

    def make(folder):
        with open(folder + "/large", "wb") as file:
            file.write(noise(40_000_000, 9))

    def reads(fs, folder):
        with fs.open(folder + "/large", "rb") as file:
            tail = file.seek(-1000, io.SEEK_END), file.read()
            parts = [(file.seek(at), file.read(70_000)) for at in (0, 39_990_000, 12_345_678, 8 << 20)]
            lines = (file.seek(1_000_000), file.readline())
        ranges = fs.cat_ranges([folder + "/large"] * 3, [0, 20_000_000, -5], [10, 20_000_100, None])
        blocks = [fs.read_block(folder + "/large", at, length) for at, length in ((10, 20), (39_999_990, 20), (5, None))]
        return tail, parts, lines, ranges, file.size, [hash(block) for block in blocks]

    read(make, reads)
