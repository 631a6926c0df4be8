"""Give so many inputs to each target and tell what was new in the last fifth of them: edges of Stoker's own code, and of
the libraries that read on its behalf.

    python3 fuzz/run.py PROGRAM RUNS TARGET...

What is found on the way is kept in target/fuzz/corpus and begins the next run; a crash ends all with exit status 1.
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
    """Executions, edges, and the addresses that were first met in the last fifth."""
    waiting, late, executions, edges = [], [], 0, 0
    for line in lines:
        if "NEW_PC: " in line:
            waiting.append(int(line.split("NEW_PC: ")[1].split()[0], 16))
        elif said := re.match(r"#(\d+)\s.* cov: (\d+)", line):
            executions, edges = int(said[1]), int(said[2])
            if executions * 5 > runs * 4:
                late += waiting
            waiting = []
    return executions, edges, late


def sources(program, addresses):
    """Whose each address is: its source file and line, innermost where functions were put into one another, but for those
    of Rust's own library."""
    if not addresses:
        return []
    asked = ["addr2line", "-a", "-i", "-e", program, *(hex(one - BASE - 1) for one in addresses)]
    said = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
    frames = [one.split("\n")[1:-1] for one in ("\n" + said).split("\n0x")[1:]]
    return [next((frame for frame in one if "/library/" not in frame), "Rust") for one in frames]


def main():
    program, runs, targets = os.path.abspath(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ours = os.path.dirname(HERE) + "/"
    for target in targets:
        executions, edges, addresses = late(fuzz(program, runs, target), runs)
        places = sources(program, addresses)
        own = sorted(place[len(ours) :].split(" ")[0] for place in places if place.startswith(ours))
        print(
            "%s: %s executions, %s edges; new in the last fifth: %d of our own code, %d of libraries"
            % (target, f"{executions:,}", f"{edges:,}", len(own), len(places) - len(own)),
            *own,
            flush=True,
        )


if __name__ == "__main__":
    main()
