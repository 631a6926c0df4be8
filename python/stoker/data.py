"""A data set: its names, and their bytes, a batch at a time.

Invariant: whatever ends a call (an exception, a signal, a fork, the end of the node) leaves nothing behind that the next
one could take for its own answer, and no descriptor open.
"""

import builtins
import errno
import itertools
import json
import operator
import os
import re
import socket
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import _place
from ._batch import Batch, checked
from ._wire import ITEMS_MAX, VERSION, Gone, Line, Unreachable, problem
from .order import as_far_as_told

#: How long a node that is gone may take to be there again: a restart takes a moment, and killed it is started anew.
WITHIN_SECONDS = 20.0

#: How long a node that was never there is looked for, where none may be started.
_THERE_SECONDS = 2.0

#: The kind of a mount of Stoker, as the kernel tells it.
_KIND = "fuse.stoker"

#: Between two looks for a node that is being started.
_PAUSE_SECONDS = 0.02
_HINTED = frozenset(("sampler", "include", "exclude", "expected", "source", "forget"))

Name = Union[str, "os.PathLike[str]"]
Result = Union[bytes, bytearray, memoryview, OSError]


def several(what: str, some: Iterable[Any]) -> List[Any]:
    """All of them."""
    return list(each(what, some))


def each(what: str, some: Iterable[Any]) -> Iterator[Any]:
    """One after the other. One text is a list of its letters to Python, and is never meant so."""
    if isinstance(some, (str, bytes, os.PathLike)):
        raise TypeError("%s is a list, and %r is one of it (try: [%r])" % (what, some, some))
    return iter(some)


def open(
    url: Name,
    *,
    endpoint: Optional[str] = None,
    region: Optional[str] = None,
    profile: Optional[str] = None,
    anonymous: bool = False,
    cache: Optional[str] = None,
    socket: Optional[str] = None,
) -> "Data":
    """Open a data set: a bucket or a part of it by its URL, a mount of Stoker or a folder by its path.

    The words mean what the flags of `stoker mount` mean. `socket` is that of a node, else `STOKER_SOCKET`, else the node of
    the cache folder, which is started if there is none.
    """
    data = Data(url, endpoint=endpoint, region=region, profile=profile, anonymous=anonymous, cache=cache, socket=socket)
    data.connect()
    return data


def status(socket: Optional[str] = None, cache: Optional[str] = None) -> Dict[str, Any]:
    """What the node does and holds (docs/status.md)."""
    named = socket or (None if cache else _place.socket_named())
    path = _place.control_socket(named or _place.of_cache(_place.cache(cache)))
    return _get(path, "/v1/status")


class Data:
    """A data set. Processes that are forked from this one may use it, and so may those that it is pickled to."""

    def __init__(self, url: Name, **asked: Any) -> None:
        text = os.fspath(url)
        self.url = text if "://" in text else os.path.abspath(text)
        self._asked = {name: value for name, value in asked.items() if value}
        self._idle: List[Line] = []
        self._welcome: Dict[str, Any] = {}

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_again, (self.url, self._asked))

    def __repr__(self) -> str:
        return "stoker.open(%r)" % self.url

    def __enter__(self) -> "Data":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> Dict[str, Any]:
        """Ask what the data set is, if nobody did."""
        if not self._welcome:
            self._give_back(self._line())
        return self._welcome

    def close(self) -> None:
        """Let go of the node. What is asked later connects again."""
        while self._idle:
            self._idle.pop().close()

    @property
    def files(self) -> int:
        """How many there are."""
        return int(self.connect()["objects"])

    @property
    def bytes(self) -> int:
        """How many they have."""
        return int(self.connect()["bytes"])

    @property
    def mounted(self) -> Optional[str]:
        """Where it is mounted, if it was opened by a path in a mount."""
        return self.connect().get("mounted")

    # Reading

    def read(self, name: Name, offset: int = 0, length: Optional[int] = None) -> builtins.bytes:
        """A file, or so many bytes of it from an offset: fewer only at its end."""
        ranges = None if offset == 0 and length is None else [(offset, length)]
        found = self._read([os.fspath(name)], ranges, None)[0]
        if isinstance(found, OSError):
            raise found
        return found  # type: ignore[no-any-return]

    def read_many(
        self,
        names: Iterable[Name],
        into: Optional[Any] = None,
        ranges: Optional[Sequence[Tuple[int, Optional[int]]]] = None,
        errors: str = "raise",
    ) -> List[Any]:
        """Files in one question each 64. `ranges` are an offset and a length for each, or None.

        They come as bytes; with `into`, a buffer that can be written and has room for all of them, as writable views
        of it: which place is whose, the views alone tell. With `errors="return"` what failed is given as an exception in its place.
        """
        if errors not in ("raise", "return"):
            raise ValueError('errors is "raise" or "return", and not %r' % errors)
        wanted = [os.fspath(name) for name in several("names", names)]
        asked = list(ranges) if ranges is not None else None
        if asked is not None and len(asked) != len(wanted):
            raise ValueError("%d names with %d ranges" % (len(wanted), len(asked)))
        buffer = None if into is None else memoryview(into).cast("B")
        out: List[Any] = []
        for start in range(0, len(wanted), ITEMS_MAX):
            part = None if asked is None else asked[start : start + ITEMS_MAX]
            found = self._read(wanted[start : start + ITEMS_MAX], part, buffer)
            if errors == "raise":
                for one in found:
                    if isinstance(one, OSError):
                        raise one
            if buffer is not None:
                buffer = buffer[sum(len(one) for one in found if not isinstance(one, OSError)) :]
            out.extend(found)
        return out

    def path(self, name: Name) -> Optional[str]:
        """A path of the local file system with these bytes, for programs that want one; None if it is not complete here.

        In a mount that is the file in it. Otherwise it is the file of the cache: open it soon, as it goes when its place
        is needed; who has it open reads on.
        """
        text = os.fspath(name)
        if self.mounted is not None and _is_mounted(self.mounted, self.connect()["url"]):
            self.look([text])
            return os.path.join(self.mounted, text)
        found: List[Optional[str]] = [None]

        def ask(line: Line) -> Dict[str, Any]:
            lent: List[int] = []
            try:
                line.say({"read": {"names": [text], "ranges": [(0, 0)]}})
                item = checked(line.hear(lent))["items"][0]
                if "descriptor" in item:
                    found[0] = _path_of(lent[item["descriptor"]])
            finally:
                for number in lent:
                    os.close(number)
            return item  # type: ignore[no-any-return]

        item = self._call(ask, named=text)
        if item["size"] == 0 and found[0] is None:
            return os.devnull
        return found[0]

    def _read(
        self,
        names: Sequence[str],
        ranges: Optional[Sequence[Tuple[int, Optional[int]]]],
        buffer: Optional[memoryview],
    ) -> List[Any]:
        """Up to 64 of them."""
        batch = Batch(names, ranges, buffer)
        # On one connection: another knows nothing of what was begun.
        self._call(batch.read)
        return batch.found

    # Names

    def list(self, under: str = "", sizes: bool = False) -> List[Any]:
        """All files below a folder, by their paths from it, in the order of their names; with `sizes` as pairs."""
        return self._names(under, True, sizes)

    def entries(self, folder: str = "") -> List[Tuple[str, int]]:
        """What is directly in a folder: names and sizes, those of folders with a slash behind."""
        return self._names(folder, False, True)

    def look(self, names: Iterable[Name]) -> List[Dict[str, Any]]:
        """What there is to say of files and folders: `size`, `folder`, `modified_ns`. A name that is not there is an error."""
        wanted = [os.fspath(name) for name in several("names", names)]
        out: List[Dict[str, Any]] = []
        for start in range(0, len(wanted), ITEMS_MAX):
            some = wanted[start : start + ITEMS_MAX]
            answer = self._call(lambda line: line.ask({"look": {"names": some}}))
            for name, item in zip(some, answer["items"]):
                if "error" in item:
                    raise problem(item["error"], name)
                out.append({"name": name, "folder": False, **item})
        return out

    def _names(self, under: str, deep: bool, sizes: bool) -> List[Any]:
        def ask(line: Line) -> Dict[str, Any]:
            out: List[Any] = []
            line.say({"list": {"under": under, "deep": deep}})
            more = True
            while more:
                answer = checked(line.hear())
                out.extend(tuple(pair) for pair in answer["names"]) if sizes else out.extend(
                    name for name, _ in answer["names"]
                )
                more = answer["more"]
            return {"names": out}

        return self._call(ask)["names"]  # type: ignore[no-any-return]

    # Ahead of reading

    def load(
        self,
        under: str = "",
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        names: Optional[Iterable[str]] = None,
        verify: bool = False,
        progress: Optional[Callable[[Dict[str, Any]], None]] = None,
    ) -> Dict[str, Any]:
        """Fetch what is wanted into the cache, and return when it is there: what `stoker load` does, as it says it."""
        select: Dict[str, Any] = {"under": under, "verify": verify}
        select.update(include=several("include", include), exclude=several("exclude", exclude))
        if names is not None:
            select["list"] = several("names", names)

        def ask(line: Line) -> Dict[str, Any]:
            line.say({"load": select})
            while True:
                said = line.hear()
                if said.get("over"):
                    return checked(said)
                checked(said)
                if progress is not None:
                    progress(said)

        return self._call(ask)

    def hint(self, order: Optional[Iterable[Any]] = None, name: str = "", under: str = "", **more: Any) -> Dict[str, Any]:
        """Say in which order files will be read: by their names, or by their numbers in `list(under)`; nothing means that
        order itself. Of more than a request has room for the beginning is said. It is advice: a wrong one costs speed, and
        never a byte. `name` is that of the reader; the node forgets the order when this process has ended, and with it all
        that opened files by it. `more` are fields of `HintRequest` (docs/hint.md): `sampler`, `include`, `exclude`,
        `expected`, `source`, `forget`."""
        for field in more:
            if field not in _HINTED:
                raise TypeError("hint() has no argument %r (try: one of %s)" % (field, ", ".join(sorted(_HINTED))))
        request: Dict[str, Any] = {"path": under, "name": name, **more}
        if order is not None:
            said = each("order", order)
            first = list(itertools.islice(said, 1))
            numbers = bool(first) and not isinstance(first[0], (str, os.PathLike))
            told: Iterable[Any] = map(operator.index if numbers else os.fspath, itertools.chain(first, said))
            request["numbers" if numbers else "list"] = as_far_as_told(told)
        return self._call(lambda line: line.ask({"hint": request}))

    def refresh(self) -> None:
        """List the data set again."""
        self._welcome = self._call(lambda line: line.ask({"refresh": {}}))

    # The node

    def _call(self, ask: Callable[[Line], Dict[str, Any]], named: Optional[str] = None) -> Dict[str, Any]:
        """Have something asked on a connection that nobody else uses. If the node goes away meanwhile, ask the next one."""
        until: Optional[float] = None
        while True:
            line = self._line()
            try:
                answer = checked(ask(line), named)
            except Gone as error:
                line.close()
                until = until or time.monotonic() + WITHIN_SECONDS
                if time.monotonic() > until:
                    raise Unreachable(errno.ECONNREFUSED, "the node ends again and again", self.url) from error
                # Others are idle on the node that is gone.
                self.close()
                time.sleep(_PAUSE_SECONDS)
                continue
            except OSError as error:
                # What a node said is said to its end.
                if getattr(error, "was_said", False):
                    self._give_back(line)
                else:
                    line.close()
                raise
            except BaseException:
                line.close()
                raise
            self._give_back(line)
            return answer

    def _give_back(self, line: Line) -> None:
        self._idle.append(line)

    def _line(self) -> Line:
        """A connection of this process that is not in use."""
        me = os.getpid()
        while self._idle:
            # Taken by one thread alone.
            try:
                line = self._idle.pop()
            except IndexError:
                break
            if line.pid == me:
                return line
            line.close()
        return self._connect()

    def _connect(self) -> Line:
        named = self._asked.get("socket") or (None if self._asked.get("cache") else _place.socket_named())
        folder = None if named else _place.cache(self._asked.get("cache"))
        path = _place.data_socket(named) if named else _place.of_cache(folder or "")
        goes_on = bool(folder or self._welcome)
        until = time.monotonic() + (WITHIN_SECONDS if goes_on else _THERE_SECONDS)
        pause, nodes = _PAUSE_SECONDS, _place.Starts(folder or "")
        while True:
            failed: OSError
            try:
                line = Line(path)
            except (FileNotFoundError, ConnectionRefusedError) as error:
                failed = error
                if folder is not None and time.monotonic() <= until:
                    nodes.start()
            else:
                try:
                    return self._greet(line, named is None)
                except Gone as error:
                    failed = error
            if time.monotonic() > until:
                raise Unreachable(errno.ECONNREFUSED, "no node answers (is one running?)", path) from failed
            time.sleep(pause)
            pause = min(2 * pause, 0.4)

    def _greet(self, line: Line, is_own: bool) -> Line:
        try:
            if is_own and line.peer != os.geteuid():
                raise PermissionError(errno.EACCES, "user %d listens where this user's node should" % line.peer)
            asked = {name: self._asked.get(name) for name in ("endpoint", "region", "profile", "anonymous")}
            hello: Dict[str, Any] = {"version": VERSION, **_place.reach(self.url, asked)}
            hello["url" if "://" in self.url else "path"] = self.url
            # A node of somebody else is told nothing of who we are.
            if line.peer == os.geteuid():
                hello.update(_place.credentials(self.url))
            answer = line.ask(hello)
            if "error" in answer:
                raise problem(answer["error"])
            if "://" not in self.url and not answer.get("mounted") and _kind_of(self.url) == _KIND:
                # It would be read as a folder, and each file be kept twice.
                what = "this lies in a mount of another node, or is bound from one (try: where all of it is mounted, or cache= or socket= of that node; `stoker status` names them)"
                raise OSError(errno.EINVAL, what, self.url)
            line.welcome = self._welcome = answer
            return line
        except BaseException:
            line.close()
            raise


def _again(url: str, asked: Dict[str, Any]) -> Data:
    return Data(url, **asked)


def _is_mounted(path: str, url: str) -> bool:
    """Whether this process sees that data set there: in a container, or after an unmount, something else lies at the path."""
    found = _mount_of(path)
    return found is not None and found == (_KIND, url)


def _kind_of(path: str) -> Optional[str]:
    found = _mount_of(os.path.realpath(path))
    return found and found[0]


def _mount_of(path: str) -> Optional[Tuple[str, str]]:
    """What kind of file system a path lies on, and of what."""
    found = None
    with builtins.open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            about, _, kind = line.rstrip("\n").partition(" - ")
            place = _unescaped(about.split(" ")[4])
            if path == place or path.startswith(place.rstrip("/") + "/"):
                # Later ones lie over earlier ones, and longer paths within shorter ones.
                if found is None or len(place) >= len(found[0]):
                    found = (place, kind.split(" "))
    return found and (found[1][0], _unescaped(found[1][1]))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), text)


def _path_of(file: int) -> Optional[str]:
    """The path of a descriptor, if this process can see it."""
    try:
        path = os.readlink("/proc/self/fd/%d" % file)
        there, here = os.stat(path), os.fstat(file)
    except OSError:
        return None
    return path if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) else None


def _get(path: str, what: str) -> Dict[str, Any]:
    """Ask the control socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise Unreachable(errno.ECONNREFUSED, "no node answers", path) from error
        asking.sendall(("GET %s HTTP/1.1\r\nhost: stoker\r\nconnection: close\r\n\r\n" % what).encode())
        answer = b""
        while True:
            more = asking.recv(1 << 16)
            if not more:
                break
            answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = b"".join(_chunks(body))
    said: Dict[str, Any] = json.loads(body)
    return said


def _chunks(body: builtins.bytes) -> Iterator[builtins.bytes]:
    while body:
        length, _, rest = body.partition(b"\r\n")
        size = int(length, 16)
        yield rest[:size]
        body = rest[size + 2 :]
        if not size:
            return
