"""A wheel that brings the program along: python3 python/wheel.py PROGRAM FOLDER

It is the wheel of plain Python, with the program among its scripts, and called by the oldest C library and the processor that
the program needs (PEP 600).
"""

import base64
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent


def said(*words: str) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def tag(program: Path) -> str:
    """Where it runs: the newest symbols of glibc that it asks for."""
    symbols = said("objdump", "-T", str(program))
    needs = max(tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    return "py3-none-manylinux_%d_%d_%s" % (*needs, platform.machine())


def plain(folder: Path) -> Path:
    # What setuptools leaves behind stays out of the tree.
    copy = folder / "source"
    shutil.copytree(HERE / "stoker", copy / "stoker", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "pyproject.toml", copy)
    said(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(copy))
    (wheel,) = folder.glob("*.whl")
    return wheel


def entry(name: str, mode: int) -> zipfile.ZipInfo:
    # The same bytes make the same wheel.
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.external_attr, info.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
    return info


def make(program: Path, folder: Path) -> Path:
    with tempfile.TemporaryDirectory() as scratch:
        stripped = Path(scratch, "stoker")
        said("strip", "-o", str(stripped), str(program))
        with zipfile.ZipFile(plain(Path(scratch))) as made:
            files = {name: made.read(name) for name in made.namelist()}
        (about,) = {name.split("/")[0] for name in files if name.endswith(".dist-info/WHEEL")}
        whole = about[: -len(".dist-info")]
        version = said(str(program), "--version").split()[1]
        if whole != f"stoker-{version}":
            raise SystemExit(f"the program is of version {version}, and the package {whole}: change python/pyproject.toml")
        named = tag(program)
        lines = files[f"{about}/WHEEL"].decode().splitlines()
        lines = [line for line in lines if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))]
        files[f"{about}/WHEEL"] = "\n".join([*lines, "Root-Is-Purelib: false", f"Tag: {named}", ""]).encode()
        script = f"{whole}.data/scripts/stoker"
        files[script] = stripped.read_bytes()
        del files[f"{about}/RECORD"]
        record = ""
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"{whole}-{named}.whl"
        with zipfile.ZipFile(wheel, "w") as out:
            for name, content in sorted(files.items()):
                out.writestr(entry(name, 0o755 if name == script else 0o644), content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record += f"{name},sha256={digest},{len(content)}\n"
            out.writestr(entry(f"{about}/RECORD", 0o644), record + f"{about}/RECORD,,\n")
    return wheel


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), Path(sys.argv[2])))
