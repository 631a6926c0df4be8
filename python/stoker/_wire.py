"""The data socket, as bytes: a frame is a length, a count of descriptors, and JSON (docs/format.md).

Invariant: a connection is one process's, and one call's at a time; one on which a call was cut short is closed.
"""

import array
import errno
import json
import os
import socket
import struct
from typing import Any, Dict, List, Optional

VERSION = 1

#: Names in one question; a message holds 253 descriptors, and 64 cost least an image.
ITEMS_MAX = 64

_HEADER = struct.Struct("<IHH")
_SPACE = socket.CMSG_SPACE(4 * (ITEMS_MAX + 1))
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)
_PEER = struct.Struct("iII")

_ERRNO = {
    "missing": errno.ENOENT,
    "denied": errno.EACCES,
    "changed": errno.ESTALE,
    "corrupt": errno.EIO,
    "full": errno.ENOSPC,
    "invalid": errno.EINVAL,
    "unavailable": errno.ETIMEDOUT,
}


class Unreachable(ConnectionError):
    """No node could be asked."""


class Gone(ConnectionError):
    """The connection ended in the middle: ask again on another."""


class TooMany(OSError):
    """Descriptors were lost on the way, because this process may have no more."""


def problem(said: Dict[str, Any], name: Optional[str] = None, folder: bool = False) -> OSError:
    """What a node says of a failure, as Python's own exception for it."""
    number = errno.EISDIR if folder else _ERRNO.get(said.get("kind", ""), errno.EIO)
    text = said.get("what", "it failed")
    if said.get("hint"):
        text += " (try: " + said["hint"] + ")"
    return OSError(number, text, said.get("on") if name is None else name)


class Line:
    """A connection to a data set."""

    __slots__ = ("batch", "pid", "socket", "welcome", "peer")

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.batch = ITEMS_MAX
        self.welcome: Dict[str, Any] = {}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(path)
            said = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            self.peer = _PEER.unpack(said)[1]
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        # A copy that a fork made is this process's own: closing it ends nothing for the other.
        sock = getattr(self, "socket", None)
        if sock is not None:
            sock.close()

    def say(self, message: Any) -> None:
        body = json.dumps(message, separators=(",", ":")).encode()
        try:
            self.socket.sendall(_HEADER.pack(len(body), 0, 0) + body)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Gone(errno.ECONNRESET, "the node hung up") from error

    def hear(self, lent: Optional[List[int]] = None) -> Dict[str, Any]:
        """The next message. Descriptors that come with it are in `lent` from when they are there, for the caller to
        close. TooMany where some were lost."""
        held: List[int] = [] if lent is None else lent
        try:
            header, ancillary, flags, _ = self.socket.recvmsg(_HEADER.size, _SPACE, _CLOEXEC)
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                    held.extend(numbers)
            header += self._exactly(_HEADER.size - len(header))
            length, count, _ = _HEADER.unpack(header)
            body = self._exactly(length)
        except ConnectionResetError as error:
            raise Gone(errno.ECONNRESET, "the node hung up") from error
        if flags & socket.MSG_CTRUNC or count != len(held):
            raise TooMany(errno.EMFILE, "this process may have no more files open (RLIMIT_NOFILE)")
        answer: Dict[str, Any] = json.loads(body)
        return answer

    def _exactly(self, length: int) -> bytes:
        if length == 0:
            return b""
        got = self.socket.recv(length, socket.MSG_WAITALL)
        pieces = [got]
        left = length - len(got)
        while left:
            if not pieces[-1]:
                raise Gone(errno.ECONNRESET, "the node hung up")
            pieces.append(self.socket.recv(left, socket.MSG_WAITALL))
            left -= len(pieces[-1])
        return got if len(pieces) == 1 else b"".join(pieces)

    def ask(self, message: Any) -> Dict[str, Any]:
        self.say(message)
        return self.hear()
