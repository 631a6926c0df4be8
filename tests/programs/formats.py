"""Programs of Python on a folder, as people have them: `formats.py make KIND FOLDER` writes files of a kind, `formats.py read
KIND FOLDER` reads them in the ways of its library, and prints digests of what it got. So two folders can be compared by what
the same program says of them. Exit code 3: a library is missing.
"""

import hashlib
import os
import random
import subprocess
import sys

# Over 16 MiB, so that it takes more than one request, and neither a multiple of a page nor of a block.
LARGE = 17_000_003


def digest(*parts):
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()


def noise(count, seed):
    return random.Random(seed).randbytes(count)


class Stdlib:
    def make(self):
        import gzip
        import zipfile

        os.mkdir("tree")
        for number in range(40):
            os.makedirs(f"tree/{number % 4}", exist_ok=True)
            with open(f"tree/{number % 4}/{number}.bin", "wb") as file:
                file.write(noise(number * 3_001, number))
        with open("large", "wb") as file:
            file.write(noise(LARGE, 1))
        with zipfile.ZipFile("large.zip", "w") as archive:
            for number in range(20):
                archive.writestr(f"{number}", noise(1_000_000 + number, number))
        with gzip.open("lines.gz", "wt", compresslevel=1) as file:
            file.writelines(f"{number} {number * number}\n" for number in range(100_000))

    def read(self):
        import gzip
        import mmap
        import shutil
        import tempfile
        import zipfile
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

        for folder, folders, files in os.walk("."):
            folders.sort()
            print(folder, sorted((name, os.stat(f"{folder}/{name}").st_size) for name in files))
        names = sorted(entry.path for sub in os.scandir("tree") for entry in os.scandir(sub))
        for pool in (ThreadPoolExecutor, ProcessPoolExecutor):
            with pool(4) as crew:
                print(digest(*(bytes.fromhex(one) for one in crew.map(whole, names))))
        with open("large", "rb") as file:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as area:
                places = random.Random(2)
                print(digest(*(area[at : at + 5_000] for at in (places.randrange(LARGE) for _ in range(300)))))
                print(area.find(noise(LARGE, 1)[-100:]), digest(area))
            places = random.Random(3)
            offsets = [places.randrange(LARGE) for _ in range(200)]
            with ThreadPoolExecutor(8) as crew:
                print(digest(*crew.map(lambda at: os.pread(file.fileno(), 70_000, at), offsets)))
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            parts = [bytearray(1_000), bytearray(1), bytearray(100_000)]
            print(os.preadv(file.fileno(), parts, 123_457), digest(*parts))
            print(os.lseek(file.fileno(), 5, os.SEEK_DATA), os.lseek(file.fileno(), 5, os.SEEK_HOLE))
        with tempfile.TemporaryDirectory() as scratch:
            for copy in (sendfile, program, shutil.copyfile):
                copy("large", f"{scratch}/copy")
                print(whole(f"{scratch}/copy"))
                os.unlink(f"{scratch}/copy")
            shutil.copytree("tree", f"{scratch}/tree")
            print([whole(f"{scratch}/{name}") for name in names[:5]])
        with zipfile.ZipFile("large.zip") as archive:
            print(archive.testzip(), digest(archive.read("7"), archive.read("19")))
        with gzip.open("lines.gz", "rt") as file:
            print(sum(int(line.split()[1]) for line in file))


def whole(name):
    with open(name, "rb") as file:
        return digest(file.read())


def sendfile(source, target):
    with open(source, "rb") as source, open(target, "wb") as target:
        at = 0
        while count := os.sendfile(target.fileno(), source.fileno(), at, 1 << 22):
            at += count


def program(source, target):
    """As cp copies: between file systems of two kinds the kernel's own copy is refused, and it knows what to do then."""
    subprocess.run(["cp", source, target], check=True)


class Numpy:
    def make(self):
        import numpy

        numbers = numpy.random.default_rng(1)
        numpy.save("large.npy", numbers.standard_normal((1_100, 2_000)))
        numpy.savez("set.npz", a=numbers.integers(0, 99, 30_000), b=numbers.random((300, 1_000)))
        numbers.integers(0, 1 << 30, 5_000_000, dtype="u4").tofile("raw.u4")
        os.mkdir("samples")
        for number in range(30):
            numpy.save(f"samples/{number:02}.npy", numbers.random((64, 64), dtype="f4"))

    def read(self):
        import numpy

        large = numpy.load("large.npy", mmap_mode="r")
        rows = numpy.random.default_rng(2).permutation(len(large))[:200]
        print(large.shape, digest(numpy.ascontiguousarray(large[rows])), digest(numpy.load("large.npy")))
        with numpy.load("set.npz") as several:
            print({name: digest(several[name]) for name in sorted(several.files)})
        raw = numpy.memmap("raw.u4", dtype="u4", mode="r")
        print(int(raw[::977].astype("u8").sum()), digest(numpy.fromfile("raw.u4", dtype="u4", offset=4_000, count=3_000_000)))
        print([digest(numpy.load(f"samples/{name}", mmap_mode="r")) for name in sorted(os.listdir("samples"))])


class H5py:
    def make(self):
        import h5py
        import numpy

        numbers = numpy.random.default_rng(1)
        with h5py.File("large.h5", "w") as file:
            file.create_dataset("chunked", data=numbers.random((600, 64, 64)), chunks=(4, 64, 64))
            file.create_dataset("plain", data=numbers.random(400_000))
            file.create_dataset("packed", data=numpy.arange(200_000) // 7, chunks=(10_000,), compression="gzip")
            file["chunked"].attrs["of"] = "images"
        with h5py.File("small.h5", "w") as file:
            file["one"] = numpy.arange(10)

    def read(self):
        import h5py
        import numpy

        with h5py.File("large.h5") as file:
            rows = sorted(numpy.random.default_rng(2).permutation(600)[:40])
            print(sorted(file), file["chunked"].attrs["of"], digest(file["chunked"][rows]))
            print(digest(file["plain"][1_000:300_000]), int(file["packed"][:].sum()), digest(file["chunked"][:]))
        with h5py.File("small.h5") as file:
            print(file["one"][:])


class Pictures:
    def make(self):
        import numpy
        from PIL import Image

        numbers = numpy.random.default_rng(1)
        for number in range(24):
            pixels = numbers.integers(0, 256, (160 + number, 200, 3), dtype="u1")
            Image.fromarray(pixels).save(f"{number:02}.{'png' if number % 2 else 'jpg'}")
        Image.fromarray(numbers.integers(0, 256, (2_400, 2_500, 3), dtype="u1")).save("large.bmp")

    def read(self):
        from PIL import Image

        for name in sorted(os.listdir(".")):
            with Image.open(name) as picture:
                print(name, picture.size, digest(picture.convert("RGB").resize((64, 64)).tobytes()))


class Parquet:
    def make(self):
        import pyarrow
        import pyarrow.parquet

        os.mkdir("parts")
        for part, rows in enumerate([1_000, 20_000, 400_000]):
            numbers = random.Random(part)
            table = pyarrow.table(
                {
                    "id": list(range(rows)),
                    "price": [numbers.random() for _ in range(rows)],
                    "bytes": [numbers.randbytes(40) for _ in range(rows)],
                }
            )
            pyarrow.parquet.write_table(table, f"parts/{part}.parquet", row_group_size=50_000, compression="none")


class Pyarrow(Parquet):
    def read(self):
        import pyarrow.dataset
        import pyarrow.parquet

        for mapped in (False, True):
            table = pyarrow.parquet.read_table("parts/2.parquet", columns=["bytes"], memory_map=mapped)
            print(table.num_rows, digest(*table["bytes"].to_pylist()))
        groups = pyarrow.parquet.ParquetFile("parts/2.parquet")
        print(groups.num_row_groups, sum(groups.read_row_group(3, columns=["id"])["id"].to_pylist()))
        table = pyarrow.dataset.dataset("parts").to_table(filter=pyarrow.dataset.field("id") > 390_000)
        print(table.num_rows, sum(sorted(table["price"].to_pylist())))


class Duckdb(Parquet):
    def read(self):
        import duckdb

        print(duckdb.sql("select count(*), sum(id), min(price), max(price), md5(max(bytes)::varchar) from 'parts/*.parquet'").fetchall())
        print(duckdb.sql("select id, price from 'parts/2.parquet' where id % 50000 = 7 order by id").fetchall())


class Safetensors:
    def make(self):
        import numpy
        from safetensors.numpy import save_file

        numbers = numpy.random.default_rng(1)
        save_file({f"layer.{layer}": numbers.random((500, 1_000), dtype="f4") for layer in range(10)}, "model.safetensors")

    def read(self):
        from safetensors import safe_open
        from safetensors.numpy import load_file

        with safe_open("model.safetensors", framework="numpy") as file:
            print(sorted(file.keys()), digest(file.get_tensor("layer.7")), digest(file.get_slice("layer.3")[10:20].copy()))
        print([digest(tensor) for _, tensor in sorted(load_file("model.safetensors").items())])


class Torch:
    """Four processes that shuffle, as a training job has them."""

    make = Numpy.make

    def read(self):
        import numpy
        import torch

        class Samples(torch.utils.data.Dataset):
            names = sorted(os.listdir("samples"))
            rows = numpy.load("large.npy", mmap_mode="r")

            def __len__(self):
                return len(self.names) + len(self.rows)

            def __getitem__(self, index):
                if index < len(self.rows):
                    return index, digest(self.rows[index].copy())
                return index, digest(numpy.load(f"samples/{self.names[index - len(self.rows)]}"))

        order = torch.Generator().manual_seed(5)
        loader = torch.utils.data.DataLoader(Samples(), batch_size=16, shuffle=True, num_workers=4, generator=order)
        for _ in range(2):
            batches = [(index.tolist(), list(found)) for index, found in loader]
            print(len(batches), digest(repr(batches).encode()))


KINDS = {kind.__name__.lower(): kind for kind in (Stdlib, Numpy, H5py, Pictures, Pyarrow, Duckdb, Safetensors, Torch)}

if __name__ == "__main__":
    verb, kind, folder = sys.argv[1:]
    os.chdir(folder)
    try:
        getattr(KINDS[kind](), verb)()
    except ModuleNotFoundError as missing:
        print(missing, file=sys.stderr)
        sys.exit(3)
