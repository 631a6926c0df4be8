"""One batch: what is asked of it, and how far each of its files has come.

Invariant: whatever ends a call leaves no descriptor open; an error is one file's, and the rest of the batch comes.
"""

import builtins
import errno
import os
import zlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._wire import Gone, Line, TooMany, problem

#: Bytes of lent files, of which more is given back at once, so that the cache may let go of them.
_LENT_BYTES = 64 << 20

#: The most that one call of the system reads.
_READ_BYTES = 1 << 30

#: Times that a file is begun again because it was replaced meanwhile, or arrived damaged.
_BEGUN_AGAIN = 5


class Batch:
    """Up to 64 files that are read, and how far each has come."""

    def __init__(self, names: Sequence[str], ranges: Any, buffer: Optional[memoryview]) -> None:
        self.names, self.ranges, self.buffer = names, ranges, buffer
        self.found: List[Any] = [None] * len(names)
        self.left: List[int] = list(range(len(names)))
        #: Of those that come in parts: the node, how many bytes are there, and these.
        self.begun: Dict[int, Tuple[int, int, List[builtins.bytes]]] = {}
        self.again: Dict[int, int] = {}
        self.room = 0

    def read(self, line: Line) -> Dict[str, Any]:
        """Ask until nothing is left."""
        while self.left:
            self._ask(line)
        return {}

    def _ask(self, line: Line) -> None:
        """Ask for what is left, as much as can be at a time."""
        some = self.left[: line.batch]
        wanted: Dict[str, Any] = {"names": [self.names[number] for number in some]}
        if self.begun or self.ranges is not None:
            wanted["ranges"] = [self._range(number) for number in some]
            wanted["nodes"] = [self.begun[number][0] if number in self.begun else 0 for number in some]
        lent: List[int] = []
        try:
            line.say({"read": wanted})
            try:
                answer = checked(line.hear(lent))
            except TooMany:
                if line.batch == 1:
                    raise
                line.batch //= 2
                return
            bytes_lent = self._take(some, answer["items"], lent)
        except Gone:
            # What was begun is the old node's.
            self.begun.clear()
            raise
        finally:
            for number in lent:
                os.close(number)
        self.left = [number for number in self.left if self.found[number] is None]
        if not self.left and bytes_lent > _LENT_BYTES:
            try:
                line.say({"done": {}})
            except Gone:
                # It was given back with the end of the node.
                pass

    def _range(self, number: int) -> Tuple[int, Optional[int]]:
        offset, length = self.ranges[number] if self.ranges is not None else (0, None)
        if number in self.begun:
            got = self.begun[number][1]
            return (offset + got, None if length is None else length - got)
        return (offset, length)

    def _take(self, some: List[int], items: List[Dict[str, Any]], lent: List[int]) -> int:
        total = 0
        for number, item in zip(some, items):
            if "error" in item:
                self._failed(number, item)
                continue
            offset, length = self._range(number)
            size = item["size"]
            left = max(0, size - offset) if length is None else max(0, min(length, size - offset))
            try:
                if "descriptor" in item:
                    total += size
                    self._done(number, lent[item["descriptor"]], offset, left)
                else:
                    self._part(number, item, lent, left)
                    # Memory is given back at once.
                    total += _LENT_BYTES + 1 if item["length"] else 0
            except OSError as error:
                # The rest of the batch comes.
                self.found[number] = OSError(error.errno, error.strerror, self.names[number])
        return total

    def _failed(self, number: int, item: Dict[str, Any]) -> None:
        was_begun = self.begun.pop(number, None) is not None
        if was_begun and item["error"].get("kind") == "changed" and self._may_begin_again(number):
            return
        self.found[number] = problem(item["error"], self.names[number], item.get("folder", False))

    def _may_begin_again(self, number: int) -> bool:
        self.again[number] = self.again.get(number, 0) + 1
        return self.again[number] <= _BEGUN_AGAIN

    def _done(self, number: int, file: int, offset: int, length: int) -> None:
        """The rest, from a file that is complete."""
        before = self.begun.pop(number, None)
        if self.buffer is None and before is None and length <= _READ_BYTES:
            bytes_read: Any = os.pread(file, length, offset) if length else b""
            if len(bytes_read) == length:
                self.found[number] = bytes_read
                return
        if self.buffer is not None and before is None:
            self._fill(number, file, offset, self._room(length))
            return
        rest = bytearray(length)
        _fill(file, memoryview(rest), offset)
        pieces = (before[2] if before else []) + [rest]
        self._give(number, pieces)

    def _part(self, number: int, item: Dict[str, Any], lent: List[int], left: int) -> None:
        """Some bytes out of the memory that came with the answer."""
        length = item["length"]
        piece = os.pread(lent[-1], length, item["at"]) if length else b""
        if len(piece) != length or zlib.crc32(piece) != item["crc"]:
            self.begun.pop(number, None)
            if not self._may_begin_again(number):
                self.found[number] = OSError(errno.EIO, "the bytes arrived damaged", self.names[number])
            return
        node, got, pieces = self.begun.pop(number, (item["node"], 0, []))
        if length:
            pieces.append(piece)
        if length >= left:
            self._give(number, pieces)
        else:
            # Also where there was no room for a byte of it: it is open.
            self.begun[number] = (node, got + length, pieces)

    def _give(self, number: int, pieces: List[Any]) -> None:
        if self.buffer is None:
            only = len(pieces) == 1 and isinstance(pieces[0], builtins.bytes)
            self.found[number] = pieces[0] if only else b"".join(pieces)
            return
        view, at = self._room(sum(len(piece) for piece in pieces)), 0
        for piece in pieces:
            view[at : at + len(piece)] = piece
            at += len(piece)
        self.found[number] = view

    def _room(self, length: int) -> memoryview:
        assert self.buffer is not None
        if self.room + length > len(self.buffer):
            raise ValueError("the buffer has room for %d bytes less than what is read" % (self.room + length - len(self.buffer)))
        view = self.buffer[self.room : self.room + length]
        self.room += length
        return view

    def _fill(self, number: int, file: int, offset: int, view: memoryview) -> None:
        _fill(file, view, offset)
        self.found[number] = view


def _fill(file: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < len(view):
        got = os.preadv(file, [view[done : done + _READ_BYTES]], offset + done)
        if not got:
            raise OSError(errno.ESTALE, "the file has another length than when it was opened")
        done += got


def checked(answer: Dict[str, Any], name: Optional[str] = None) -> Dict[str, Any]:
    if answer.get("error"):
        error = problem(answer["error"], name, answer.get("folder", False))
        error.was_said = True  # type: ignore[attr-defined]
        raise error
    return answer
