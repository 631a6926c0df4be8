"""Give so many inputs to each target and tell what was new in the last fifth of them: edges of Stoker's own code, and of
the libraries that read on its behalf.

    python3 fuzz/run.py PROGRAM RUNS TARGET...

What is found on the way is kept in target/fuzz/corpus and begins the next run. A crash ends all with exit status 1; edges of
our own code in the last fifth make it 2, after the last target.
"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../target/fuzz")

#: Where Linux puts a program that may lie anywhere, when it does not choose by chance.
BASE = 0x555555554000


def fuzz(program, runs, target):
    """The log of one target. Without chance in its addresses, so that those in the log are those of the file."""
    found = os.path.join(OUT, "corpus", target)
    os.makedirs(found, exist_ok=True)
    words = os.path.join(HERE, "words", target)
    more = ["-dict=" + words] if os.path.exists(words) else []
    asked = ["-runs=%d" % runs, "-max_len=8192", "-timeout=10", "-rss_limit_mb=1024", "-print_pcs=1", *more]
    asked.append("-artifact_prefix=%s/%s-" % (OUT, target))
    log = os.path.join(OUT, target + ".log")
    with open(log, "wb") as file:
        command = ["setarch", "-R", program, *asked, found, os.path.join(HERE, "corpus", target)]
        ended = subprocess.run(command, stderr=file, cwd=HERE, env={**os.environ, "TARGET": target})
    with open(log, errors="replace") as file:
        lines = file.read().splitlines()
    if ended.returncode:
        print("\n".join(lines[-40:]), file=sys.stderr)
        raise SystemExit(1)
    return lines


def late(lines, runs):
    """Executions, edges that it began with and all, and the addresses that were first met in the last fifth."""
    waiting, late, executions, edges, first, met = [], [], 0, 0, None, 0
    for line in lines:
        if "NEW_PC: " in line:
            waiting.append(int(line.split("NEW_PC: ")[1].split()[0], 16))
        elif said := re.match(r"#(\d+)\s.* cov: (\d+)", line):
            executions, edges = int(said[1]), int(said[2])
            # What comes before is what it began with.
            if first is None and "\tINITED" in line:
                first = edges
            met += len(waiting)
            if executions * 5 > runs * 4:
                late += waiting
            waiting = []
    assert first is not None and executions >= runs, "it ended early"
    assert met == edges - first, "edges without an address"
    return executions, first, edges, late


def frames(said):
    """What addr2line(1) says of each address: the functions that were put into one another, innermost first."""
    return [one.split("\n")[1:] for one in ("\n" + said.rstrip("\n")).split("\n0x")[1:]]


def owner(places, ours):
    """Whose an edge is: `own`, `inlined` for a library's within our own, or `library`."""
    assert all(not place.startswith("??") for place in places), "an address that is not known"
    is_own = [place.startswith(ours) for place in places]
    # Rust's own library counts for whoever it was put into.
    outside = [own for place, own in zip(places, is_own) if "/library/" not in place]
    return "own" if outside[:1] == [True] else "inlined" if any(is_own) else "library"


def places(program, addresses):
    if not addresses:
        return []
    asked = ["addr2line", "-a", "-i", "-e", program, *(hex(one - BASE - 1) for one in addresses)]
    return frames(subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    program, runs, targets = os.path.abspath(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ours = os.path.dirname(HERE) + "/"
    is_exhausted = True
    for target in targets:
        executions, first, edges, addresses = late(fuzz(program, runs, target), runs)
        found = [(owner(one, ours), one) for one in places(program, addresses)]
        counts = [sum(kind == wanted for kind, _ in found) for wanted in ("own", "inlined", "library")]
        is_exhausted = is_exhausted and not counts[0]
        print(
            "%s: %s executions, %s edges, %s of them at first; new in the last fifth: %d of our own code, %d of libraries in it, %d of libraries"
            % (target, f"{executions:,}", f"{edges:,}", f"{first:,}", *counts),
            *sorted({one[0].replace(ours, "") for kind, one in found if kind == "own"}),
            flush=True,
        )
    # So that who asks for a million and no edge in the last fifth need not read.
    return 0 if is_exhausted else 2


if __name__ == "__main__":
    sys.exit(main())
