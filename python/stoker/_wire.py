"""The data socket, as bytes: a frame is a length, a count of descriptors, and JSON (docs/format.md).

Invariant: a connection is one process's, and one call's at a time; one on which a call was cut short is closed.
"""

import array
import errno
import json
import os
import select
import signal
import socket
import struct
from typing import Any, Dict, List, Optional, Tuple

VERSION = 1

#: Names in one question; a message holds 253 descriptors, and 64 cost least an image.
ITEMS_MAX = 64

#: A question: the node hangs up on a longer one.
_ASK_BYTES_MAX = 32 << 20
_HEADER = struct.Struct("<IHH")
_SPACE = socket.CMSG_SPACE(4 * (ITEMS_MAX + 1))
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)
_PEER = struct.Struct("iII")
_SIGNALS = signal.valid_signals()

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

    __slots__ = ("batch", "pid", "socket", "comes", "welcome", "peer")

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.batch = ITEMS_MAX
        self.welcome: Dict[str, Any] = {}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.comes = select.poll()
        self.comes.register(self.socket, select.POLLIN)
        try:
            self.socket.connect(path)
            said = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            self.peer = _PEER.unpack(said)[1]
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        """Hang up. Forks have copies, which would keep the connection alive: what they close ends nothing here."""
        if self.pid == os.getpid():
            try:
                self.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It was never connected, or the other side was faster.
                pass
        self.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.close()

    def say(self, message: Any) -> None:
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > _ASK_BYTES_MAX:
            raise ValueError("%d bytes are asked at once, of which %d are the most: say less at a time" % (len(body), _ASK_BYTES_MAX))
        try:
            self.socket.sendall(_HEADER.pack(len(body), 0, 0) + body)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Gone(errno.ECONNRESET, "the node hung up") from error

    def hear(self, lent: Optional[List[int]] = None) -> Dict[str, Any]:
        """The next message. Descriptors that come with it are in `lent` from when they are there, for the caller to
        close. TooMany where some were lost."""
        held: List[int] = [] if lent is None else lent
        try:
            header, flags = self._head(held)
            header += self._exactly(_HEADER.size - len(header))
            length, count, _ = _HEADER.unpack(header)
            body = self._exactly(length)
        except ConnectionResetError as error:
            raise Gone(errno.ECONNRESET, "the node hung up") from error
        if flags & socket.MSG_CTRUNC or count != len(held):
            raise TooMany(errno.EMFILE, "this process may have no more files open (RLIMIT_NOFILE)")
        answer: Dict[str, Any] = json.loads(body)
        return answer

    def _head(self, held: List[int]) -> Tuple[bytes, int]:
        """What comes first, once it is there. What a handler of signals throws comes before or behind it: in between,
        descriptors would be open that nobody knows."""
        self.comes.poll()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            # A handler may throw out of this very call, with all of them blocked.
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            header, ancillary, flags, _ = self.socket.recvmsg(_HEADER.size, _SPACE, _CLOEXEC)
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                    held.extend(numbers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return header, flags

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
