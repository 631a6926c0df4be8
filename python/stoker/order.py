"""In which order a DataLoader of PyTorch will read, told to the node that serves its files.

`tell(loader)` looks ahead at the sampler of a loader whose epoch is about to begin, and leaves each generator of random
numbers as it was: the epoch is the same, bit for bit. It looks only at samplers that are known to do nothing else, and
tells only of files in a mount of Stoker, or of a data set that tells its order itself. What it tells is advice: bytes never
depend on it.

Plain Python of any version from 3.8 on, one file, nothing of Stoker's: `stoker run` brings it into a job by itself. It
starts no thread and keeps no connection, so that workers may be forked at any time.
"""

import itertools
import json
import os
import socket
import stat
import sys
import tempfile
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

# What a node takes in one request is 32 MiB; an order that is longer is told as far as that.
_BODY_MAX = 30 << 20
# Samples of an epoch; as many as a node remembers.
_SAMPLES_MAX = 1 << 23
# How long a node may take to answer before the job goes on without it.
_SECONDS_MAX = 2.0
# Files by whose names a node can tell that it numbers a set as the job does.
_WITNESSES = 64
# Where data sets of whole files have their paths, as strings or first in a tuple.
_ATTRIBUTES = ("samples", "imgs", "files", "paths")

_loaders: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
_silent: Set[str] = set()


def tell(loader: Any, source: str = "peeked") -> bool:
    """Tell what the loader will read in the epoch that begins now. Whether a node took it."""
    dataset, indices = _innermost(loader.dataset)
    tells = getattr(type(dataset), "__stoker_hint__", None)
    found = None if tells else _files(dataset, indices)
    place = None if found is None else _place(found)
    numbers = peek(loader) if tells or place else None
    if not numbers:
        return False
    number = _loaders.setdefault(loader, len(_loaders) + 1)
    name = "torch sampler, pid %d" % os.getpid() + (", loader %d" % number if number > 1 else "")
    if tells:
        tells(dataset, numbers if indices is None else [int(indices[number]) for number in numbers], name, source)
        return True
    request = {"name": name, "source": source, "while_it_runs": True}
    return found is not None and place is not None and _say(place, found, numbers, request)


def hint(loader: Any) -> bool:
    """The same as the job's own word; for `stoker.torch`."""
    try:
        if peek(loader) is None:
            what = "what a %s draws is not known without drawing it (try: data.hint(names) with its order)"
            raise ValueError(what % type(loader.sampler).__name__)
        return tell(loader, "declared")
    except OSError:
        # There is no node, or files were listed anew: what keeps bytes from being read is said when they are.
        return False


def wrap(loader_type: Any) -> None:
    """Have each loader tell when an epoch begins. Never raises, and says nothing."""
    begin = loader_type.__iter__
    if getattr(begin, "_stoker", False):
        return

    def __iter__(self: Any) -> Any:
        try:
            if os.environ.get("STOKER_HINT") != "off":
                tell(self)
        except Exception:
            pass
        return begin(self)

    __iter__._stoker = True  # type: ignore[attr-defined]
    __iter__.__doc__, __iter__.__qualname__ = begin.__doc__, begin.__qualname__
    loader_type.__iter__ = __iter__


def peek(loader: Any) -> Optional[List[int]]:
    """Numbers of the samples of the epoch that begins now, or None where that can't be known without changing it."""
    data = sys.modules["torch.utils.data"]
    torch = sys.modules["torch"]
    plain = data.DataLoader
    # Who overrides how an epoch begins may draw other numbers.
    for name in ("_get_iterator", "_index_sampler"):
        if getattr(type(loader), name, None) is not getattr(plain, name, plain):
            return None
    if isinstance(loader.dataset, data.IterableDataset):
        return None
    sampler, batch = loader._index_sampler, None
    if type(sampler) is data.BatchSampler:
        sampler, batch = sampler.sampler, sampler
    known = (
        data.SequentialSampler,
        data.RandomSampler,
        data.SubsetRandomSampler,
        data.WeightedRandomSampler,
        data.DistributedSampler,
    )
    if type(sampler) not in known or not 0 < len(sampler) <= _SAMPLES_MAX:
        return None
    if type(sampler) is data.SubsetRandomSampler and type(sampler.indices) not in (list, tuple, range, torch.Tensor):
        return None
    generators = [torch.default_generator, loader.generator, getattr(sampler, "generator", None)]
    generators = [generator for generator in generators if generator is not None]
    on_cpu = all(type(one) is torch.Generator and one.device.type == "cpu" for one in generators)
    if not on_cpu or torch.empty(()).device.type != "cpu":
        return None
    before = [(generator, generator.get_state()) for generator in generators]
    try:
        goes_on = loader.persistent_workers and loader.num_workers > 0 and loader._iterator is not None
        if not goes_on:
            # The seed of the workers, which is drawn before the first sample.
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        numbers = list(iter(sampler))
    finally:
        for generator, state in before:
            generator.set_state(state)
    if batch is not None and batch.drop_last:
        del numbers[len(numbers) // batch.batch_size * batch.batch_size :]
    return [int(number) for number in numbers] if numbers and type(numbers[0]) is not int else numbers


class _Files:
    """The paths of a data set by number: `paths[indices[number]]` if there are indices."""

    def __init__(self, paths: Sequence[Any], indices: Optional[Sequence[Any]], root: Optional[str]) -> None:
        self.paths, self.indices, self.root = paths, indices, root

    def path(self, at: int) -> str:
        item = self.paths[at]
        path = os.fspath(item[0] if isinstance(item, (tuple, list)) else item)
        return path if self.root is None else os.path.join(self.root, path)


def _innermost(dataset: Any) -> Tuple[Any, Optional[Sequence[Any]]]:
    """The data set of a `Subset`, or a `Subset` of one, and which of its samples those are."""
    data, indices = sys.modules["torch.utils.data"], None
    while type(dataset) is data.Subset:
        inner = dataset.indices
        indices = inner if indices is None else [inner[number] for number in indices]
        dataset = dataset.dataset
    return dataset, indices


def _files(dataset: Any, indices: Optional[Sequence[Any]]) -> Optional[_Files]:
    """Where the files of a data set are told by it; None if they aren't."""
    # What an object has, not what it would have to work out.
    has = getattr(dataset, "__dict__", {})
    candidates = [has.get(name) for name in _ATTRIBUTES] + [dataset]
    for paths in candidates:
        if type(paths) not in (list, tuple) or not paths:
            continue
        first = paths[0][0] if isinstance(paths[0], (tuple, list)) and paths[0] else paths[0]
        if not isinstance(first, (str, os.PathLike)):
            continue
        first, root = os.fspath(first), has.get("root")
        if not isinstance(first, str):
            continue
        is_below = not os.path.isabs(first) and not os.path.lexists(first)
        return _Files(paths, indices, os.fspath(root) if is_below and isinstance(root, (str, os.PathLike)) else None)
    return None


class _Place:
    """A folder of a mount: as the job names it and as the mount does, and the socket of its node."""

    def __init__(self, given: str, real: str, node: str) -> None:
        self.given, self.real, self.node = given, real, node

    def name(self, path: str) -> Optional[str]:
        """Below the folder; None if it isn't there."""
        path = os.path.normpath(path if os.path.isabs(path) else os.path.join(os.getcwd(), path))
        return path[len(self.given) :] if path.startswith(self.given) else None


def _place(files: _Files) -> Optional[_Place]:
    first, last = (os.path.dirname(os.path.abspath(files.path(at))) for at in (0, -1))
    above = os.path.commonpath([first, last])
    real = os.path.realpath(above)
    mounts = [one for one in _mounts() if real == one[0] or real.startswith(one[0].rstrip("/") + "/")]
    if not mounts:
        return None
    node = _node_of(*max(mounts, key=lambda one: len(one[0])))
    return _Place(above.rstrip("/") + "/", real, node) if node else None


def _mounts() -> List[Tuple[str, int]]:
    """Where Stoker has mounts, as this process sees them, and which user made each."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields, _, rest = line.partition(" - ")
            if rest.startswith("fuse.stoker "):
                at = fields.split(" ")[4]
                for escaped, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                    at = at.replace(escaped, plain)
                users = [word[8:] for word in rest.replace("\n", "").split(",") if word.startswith("user_id=")]
                found.append((at, int(users[0]) if users else -1))
    return found


def _node_of(mount: str, user: int) -> Optional[str]:
    for at, owner in _sockets():
        # What the node of another user claims is not believed.
        answer = _ask(at, "GET", "/v1/status", b"") if owner == user else None
        if answer and any(one.get("path") == mount for one in answer.get("mounts", ())):
            return at
    return None


def _sockets() -> Iterator[Tuple[str, int]]:
    """Sockets of nodes that this user may ask, by the rules of the command `stoker`, and whose they are."""
    user, named = os.geteuid(), os.environ.get("STOKER_RUNTIME_DIR")
    if named:
        folders = [named + "/stoker"]
    elif user == 0:
        within = [(below, one) for below in ("/run/user", "/tmp") if os.path.isdir(below) for one in os.listdir(below)]
        folders = ["/run/stoker"] + ["%s/%s/stoker" % two for two in within if two[0] == "/run/user"]
        folders += ["%s/%s" % two for two in within if two[0] == "/tmp" and two[1].startswith("stoker-")]
    else:
        login = os.environ.get("XDG_RUNTIME_DIR")
        folders = [login + "/stoker"] if login else []
        folders.append("%s/stoker-%d" % (tempfile.gettempdir(), user))
    for folder in folders:
        try:
            owner = os.lstat(folder)
            # Somebody else's would learn which files are read.
            if not stat.S_ISDIR(owner.st_mode) or owner.st_mode & 0o022 or (user and owner.st_uid != user):
                continue
            names = sorted(name for name in os.listdir(folder) if name.endswith(".sock"))
        except OSError:
            continue
        for name in names[:64]:
            yield os.path.join(folder, name), owner.st_uid


def as_far_as_told(said: Iterable[Any]) -> List[Any]:
    """As much from the beginning of an order as one request has room for; what lies beyond it is not even taken."""
    room, told, rest = _BODY_MAX, [], iter(said)  # type: int, List[Any], Iterator[Any]
    while True:
        some = list(itertools.islice(rest, 1024))
        count, length = len(some), _length(some)
        while count and length > room:
            count //= 2
            length = _length(some[:count])
        told += some[:count]
        if not some or count < len(some):
            return told
        room -= length


def _length(said: List[Any]) -> int:
    return len(json.dumps(said, separators=(",", ":")))


def _say(place: _Place, files: _Files, numbers: Sequence[int], request: Dict[str, Any]) -> bool:
    count, indices = len(files.paths), files.indices
    chosen = numbers if indices is None else [int(indices[number]) for number in numbers]
    request["path"] = place.real
    # As numbers, if the node numbers the files of the folder as the job does.
    witnesses = {at * (count - 1) // max(_WITNESSES - 1, 1) for at in range(_WITNESSES)} | set(chosen[:_WITNESSES])
    some = [(at, place.name(files.path(at))) for at in sorted(witnesses)]
    text = ",".join(map(str, chosen))
    if len(text) > _BODY_MAX:
        text = text[: text.rindex(",", 0, _BODY_MAX)]
    expected = {"files": count, "names": [{"number": at, "name": name or ""} for at, name in some]}
    head = json.dumps(dict(request, expected=expected))
    answer = _ask(place.node, "POST", "/v1/hint", (head[:-1] + ', "numbers": [' + text + "]}").encode())
    if answer is not None:
        return True
    # One by one.
    names, room = [], _BODY_MAX
    for at in chosen:
        name = place.name(files.path(at))
        room -= len(name or "") * 6 + 4
        if room < 0:
            break
        if name:
            names.append(name)
    if not names:
        return False
    return _ask(place.node, "POST", "/v1/hint", json.dumps(dict(request, list=names)).encode()) is not None


def _ask(at: str, method: str, path: str, body: bytes) -> Any:
    """The answer of a node; None where it refuses, or doesn't answer in time: then it isn't asked again."""
    if at in _silent:
        return None
    head = "%s %s HTTP/1.1\r\nHost: stoker\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as node:
            node.settimeout(_SECONDS_MAX)
            node.connect(at)
            node.sendall((head % (method, path, len(body))).encode() + body)
            parts = []
            while True:
                part = node.recv(1 << 16)
                if not part:
                    break
                parts.append(part)
    except socket.timeout:
        _silent.add(at)
        return None
    except OSError:
        return None
    said, _, answer = b"".join(parts).partition(b"\r\n\r\n")
    if b" 200 " not in said.split(b"\r\n", 1)[0]:
        return None
    return json.loads(answer)
