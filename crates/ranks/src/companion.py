"""One rank's end of MPI (mpi4py) or of torch.distributed, where there is no mpicc; the same frames as `companion.c`.

It measures nothing and knows no benchmark. A frame, both ways, is one letter, a length (4 bytes, least first) and as
many bytes. Letters: H greeting, B barrier, G gather, C broadcast, Q leave, E failure.

Invariant: before each call all ranks agree on what it is, so that a rank which left or went astray is named instead
of waited for; a command that dies takes all ranks with it.
"""

import array
import os
import select
import socket
import struct
import sys
import time

LETTERS = b"BGCQ"
FRAME_BYTES_MAX = 64 << 20
SPIN_SECONDS = 100e-6
SLEEP_SECONDS_MAX = 200e-6

# What a library prints must not come between the frames.
REPLIES = os.dup(1)
os.dup2(2, 1)


class Gone(Exception):
    """The command closed its end."""


def take(count):
    parts, left = [], count
    while left:
        part = os.read(0, left)
        if not part:
            raise Gone
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def give(letter, content=b""):
    left = memoryview(letter + struct.pack("<I", len(content)) + bytes(content))
    while left:
        left = left[os.write(REPLIES, left) :]


def astray(greatest, greatest_rank, least, least_rank):
    """Why ranks that do different things can't go on."""
    if LETTERS[greatest] == ord("Q"):
        return f"rank {greatest_rank} left while rank {least_rank} went on"
    first, second = chr(LETTERS[greatest]), chr(LETTERS[least])
    return f"ranks {greatest_rank} and {least_rank} went different ways ({first}, {second})"


class Mpi:
    """The calls of `companion.c`, in its order, so that ranks of both kinds understand each other."""

    def __init__(self):
        from mpi4py import MPI

        self.mpi, self.world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()
        self.library = "mpi4py on " + MPI.Get_library_version().splitlines()[0].strip("\0 ")

    def wait(self, request):
        began = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - began
            if waited < SPIN_SECONDS:
                os.sched_yield()
                continue
            time.sleep(min(waited / 16, SLEEP_SECONDS_MAX))
            poll = select.poll()
            poll.register(0, select.POLLIN)
            if any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0)):
                raise Gone

    def agree(self, what):
        mine, both = array.array("i", [what, self.rank, -what, self.rank]), array.array("i", [0] * 4)
        self.wait(self.world.Iallreduce([mine, self.mpi.TWOINT], [both, self.mpi.TWOINT], op=self.mpi.MAXLOC))
        return both[0], both[1], -both[2], both[3]

    def gather(self, own):
        length, lengths = array.array("I", [len(own)]), array.array("I", [0] * self.size)
        word = self.mpi.UINT32_T
        self.wait(self.world.Igather([length, word], [lengths, word] if self.rank == 0 else None, root=0))
        if self.rank != 0:
            self.wait(self.world.Isend([own, self.mpi.BYTE], dest=0, tag=0))
            return give(b"G")
        give(b"G", own)
        for other in range(1, self.size):
            theirs = bytearray(lengths[other])
            self.wait(self.world.Irecv([theirs, self.mpi.BYTE], source=other, tag=0))
            give(b"G", theirs)

    def broadcast(self, own):
        length = array.array("I", [len(own)])
        self.wait(self.world.Ibcast([length, self.mpi.UINT32_T], root=0))
        everyone = own if self.rank == 0 else bytearray(length[0])
        self.wait(self.world.Ibcast([everyone, self.mpi.BYTE], root=0))
        give(b"C", everyone)

    def finish(self):
        self.mpi.Finalize()

    def abort(self):
        self.world.Abort(1)


class Torch:
    """torch.distributed on gloo, for ranks that torchrun started."""

    def __init__(self):
        import torch
        import torch.distributed

        self.torch, self.group = torch, torch.distributed
        self.group.init_process_group("gloo")
        self.rank, self.size = self.group.get_rank(), self.group.get_world_size()
        self.library = f"torch.distributed {torch.__version__} (gloo)"

    def agree(self, what):
        mine = self.torch.tensor([what])
        each = [self.torch.zeros_like(mine) for _ in range(self.size)]
        self.group.all_gather(each, mine)
        whats = [int(one) for one in each]
        return max(whats), whats.index(max(whats)), min(whats), whats.index(min(whats))

    def gather(self, own):
        lengths = [self.torch.zeros(1, dtype=self.torch.int64) for _ in range(self.size)]
        self.group.all_gather(lengths, self.torch.tensor([len(own)]))
        if self.rank != 0:
            self.group.send(self.bytes_of(own), dst=0)
            return give(b"G")
        give(b"G", own)
        for other in range(1, self.size):
            theirs = self.torch.zeros(int(lengths[other]) + 1, dtype=self.torch.uint8)
            self.group.recv(theirs, src=other)
            give(b"G", theirs.numpy().tobytes()[:-1])

    def broadcast(self, own):
        length = self.torch.tensor([len(own)])
        self.group.broadcast(length, src=0)
        everyone = self.bytes_of(own) if self.rank == 0 else self.torch.zeros(int(length) + 1, dtype=self.torch.uint8)
        self.group.broadcast(everyone, src=0)
        give(b"C", everyone.numpy().tobytes()[:-1])

    def bytes_of(self, own):
        """With one byte more, because no tensor that is sent may be empty."""
        return self.torch.frombuffer(bytearray(own) + b"\0", dtype=self.torch.uint8)

    def finish(self):
        self.group.destroy_process_group()

    def abort(self):
        """The others see their connections to this process end."""


def serve(ranks):
    give(b"H", f"{ranks.rank}\n{ranks.size}\n{socket.gethostname()}\n{ranks.library}".encode())
    while True:
        head = take(5)
        letter, length = head[:1], struct.unpack("<I", head[1:])[0]
        if letter not in (b"B", b"G", b"C", b"Q") or length > FRAME_BYTES_MAX:
            raise ValueError("a frame that means nothing")
        own = take(length)
        found = ranks.agree(LETTERS.index(letter))
        if found[0] != found[2]:
            if letter != b"Q":
                give(b"E", astray(*found).encode())
            ranks.finish()
            return
        if letter == b"B":
            give(b"B")
        elif letter == b"G":
            ranks.gather(own)
        elif letter == b"C":
            ranks.broadcast(own)
        else:
            ranks.finish()
            return


def main():
    ranks = {"mpi4py": Mpi, "torch": Torch}[sys.argv[1]]()
    why = ""
    try:
        return serve(ranks)
    except (Gone, BrokenPipeError):
        why = "the command ended before the others"
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        try:
            give(b"E", f"rank {ranks.rank}: another rank ended, or the network failed: {why}".encode())
        except BrokenPipeError:
            pass
    sys.stderr.write(f"stoker: rank {ranks.rank} on {socket.gethostname()}: {why}; all ranks are stopped\n")
    sys.stderr.flush()
    ranks.abort()
    os._exit(1)


main()
