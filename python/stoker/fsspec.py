"""The file system `stoker` of fsspec: what pandas, pyarrow, zarr and others read through it lies on the local disk.

    fsspec.filesystem("stoker", root="s3://bucket/train").cat("a.jpg")
    fsspec.open("stoker://s3://bucket/train/a.jpg")          # the data set is the bucket; names below keep the whole URL
    fsspec.open_local("stoker::s3://bucket/train/a.jpg")     # chained; asks for s3fs by fsspec's own rules

Synchronous: what is forked, pickled or given to a thread works. `cat` and `cat_ranges` of many are one question each 64.
"""

import errno
import io
import os
from datetime import datetime, timezone
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped, unused-ignore]
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped, unused-ignore]
from fsspec.utils import stringify_path, tokenize  # type: ignore[import-untyped, unused-ignore]

from .data import Data, several

try:
    from fsspec.implementations.chained import (  # type: ignore[import-untyped, unused-ignore]
        ChainedFileSystem as _Base,
    )
except ImportError:
    _Base = AbstractFileSystem

#: Of a file that is not complete here, so much is read ahead.
_BLOCK_BYTES = 8 << 20


class FileSystem(_Base):  # type: ignore[misc]
    """A data set as a file system that can't be written."""

    protocol = "stoker"
    local_file = True
    root_marker = ""

    def __init__(
        self,
        root: Optional[str] = None,
        target_protocol: Optional[str] = None,
        target_options: Optional[Dict[str, Any]] = None,
        fo: Optional[str] = None,
        endpoint: Optional[str] = None,
        region: Optional[str] = None,
        profile: Optional[str] = None,
        anonymous: bool = False,
        cache: Optional[str] = None,
        socket: Optional[str] = None,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        if target_protocol and not root:
            bucket = (fo or "").lstrip("/").split("/", 1)[0]
            root = fo if target_protocol == "file" else "%s://%s" % (target_protocol, bucket)
        if not root:
            raise ValueError("name the data set: fsspec.filesystem('stoker', root='s3://bucket/train')")
        self.url = root.rstrip("/")
        self._bare = self.url.split("://", 1)[-1] if target_protocol else None
        asked = {"endpoint": endpoint, "region": region, "profile": profile, "anonymous": anonymous}
        self.data = Data(self.url, cache=cache, socket=socket, **asked)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(stringify_path(path))
        # A name below a URL within the URL stays whole: what is found of it would else be taken for another protocol's.
        if text.startswith("stoker://") and "://" not in text[len("stoker://") :]:
            text = text[len("stoker://") :]
        elif text.startswith("stoker::"):
            text = text[len("stoker::") :]
        return text.rstrip("/") if not text.endswith("://") else text

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> Dict[str, Any]:
        rest = path[len("stoker://") :] if path.startswith("stoker://") else ""
        scheme, found, behind = rest.partition("://")
        return {"root": "%s://%s" % (scheme, behind.split("/", 1)[0])} if found else {}

    @property
    def fsid(self) -> str:
        return "stoker_" + str(tokenize(self.url))

    def _name(self, path: str) -> Tuple[str, str]:
        """What stands before the name of a file in the data set, and that name."""
        text = self._strip_protocol(path)
        for before in ("stoker://" + self.url, self.url, self._bare):
            if before and (text == before or text.startswith(before + "/")):
                return before + "/", text[len(before) :].strip("/")
        return "", text.strip("/")

    def info(self, path: str, **_: Any) -> Dict[str, Any]:
        before, name = self._name(path)
        if not name:
            return {"name": before.rstrip("/"), "size": 0, "type": "directory"}
        found = self.data.look([name])[0]
        return self._described(before + name, found)

    @staticmethod
    def _described(name: str, found: Dict[str, Any]) -> Dict[str, Any]:
        kind = "directory" if found["folder"] else "file"
        out = {"name": name, "size": 0 if found["folder"] else found["size"], "type": kind, "version": found["node"]}
        if found.get("modified_ns") is not None:
            out["modified_ns"] = found["modified_ns"]
        return out

    def ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        before, name = self._name(path)
        info = self.info(path)
        if info["type"] == "file":
            return [info] if detail else [info["name"]]
        start = before + (name + "/" if name else "")
        out = []
        for child, size in self.data.entries(name):
            folder = child.endswith("/")
            kind = "directory" if folder else "file"
            out.append({"name": start + child.rstrip("/"), "size": 0 if folder else size, "type": kind})
        return out if detail else [one["name"] for one in out]

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any) -> bytes:
        offset, length = self._range(path, start, end)
        return self.data.read(self._name(path)[1], offset, length)

    def _range(self, path: str, start: Optional[int], end: Optional[int]) -> Tuple[int, Optional[int]]:
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.info(path)["size"]
            start = max(0, size + start) if start is not None and start < 0 else start
            end = max(0, size + end) if end is not None and end < 0 else end
        offset = start or 0
        return (offset, None if end is None else max(0, end - offset))

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        paths = [one for one in paths if not self.isdir(one)] if recursive else paths
        many = len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)
        if not many:
            return self.cat_file(paths[0], **kwargs)
        found = self._many(paths, None, on_error)
        return {one: got for one, got in zip(paths, found) if not (on_error == "omit" and isinstance(got, Exception))}

    def cat_ranges(
        self,
        paths: Any,
        starts: Any,
        ends: Any,
        max_gap: Optional[int] = None,
        on_error: str = "return",
        **_: Any,
    ) -> List[Any]:
        paths = several("paths", paths)
        count = len(paths)
        starts = list(starts) if isinstance(starts, (list, tuple)) else [starts] * count
        ends = list(ends) if isinstance(ends, (list, tuple)) else [ends] * count
        if not len(starts) == len(ends) == count:
            raise ValueError("paths, starts and ends must be of one length")
        ranges = [self._range(one, start, end) for one, start, end in zip(paths, starts, ends)]
        return self._many(paths, ranges, on_error)

    def _many(self, paths: List[str], ranges: Any, on_error: str) -> List[Any]:
        names = [self._name(one)[1] for one in paths]
        return self.data.read_many(names, ranges=ranges, errors="raise" if on_error == "raise" else "return")

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any) -> Any:
        if mode not in ("r", "rb"):
            self._refuse(path)
        name = self._name(path)[1]
        found = self.info(path)
        if found["type"] == "directory":
            raise IsADirectoryError(21, "this is a folder", path)
        local = self.data.path(name)
        if local is not None:
            try:
                return _Kept(local, found)
            except OSError:
                # Its place was needed meanwhile, or it lies where this process can't see it.
                pass
        file = _File(self, path, mode, block_size or _BLOCK_BYTES, size=found["size"])
        file.details = found
        return file

    def _refuse(self, path: Any = None, *_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EROFS, "a data set of Stoker can't be written", path)

    cp_file = mkdir = makedirs = mv = pipe_file = put_file = rm = rm_file = rmdir = touch = _refuse

    def get_file(self, rpath: str, lpath: Any, callback: Any = None, **kwargs: Any) -> None:
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        LocalFileSystem(auto_mkdir=True).makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        with self._open(rpath) as source, io.open(lpath, "wb") as target:
            while True:
                piece = source.read(_BLOCK_BYTES)
                if not piece:
                    return
                target.write(piece)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["modified_ns"] / 1e9, tz=timezone.utc)

    created = modified

    def ukey(self, path: str) -> str:
        info = self.info(path)
        return str(tokenize(self.url, self._name(path)[1], info["version"], info["size"]))

    def invalidate_cache(self, path: Optional[str] = None) -> None:
        """Names are pinned: `fs.data.refresh()` lists them again."""


class _Kept(io.BufferedReader):
    """A file that is complete here, with what fsspec's own files tell of themselves."""

    def __init__(self, local: str, found: Dict[str, Any]) -> None:
        super().__init__(io.FileIO(local))
        self.size, self.details = found["size"], found


class _File(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is not complete here, read in parts."""

    @property
    def name(self) -> str:
        raise AttributeError("a file that is not complete here has no path (try: fs.data.load(names=[%r]) first)" % self.fs._name(self.path)[1])

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = self.fs.cat_file(self.path, start, end)
        # Parts of two versions are no file.
        if self.fs.info(self.path)["version"] != self.details["version"]:
            raise OSError(errno.ESTALE, "the file was replaced while it was read; open it again", self.path)
        return content
