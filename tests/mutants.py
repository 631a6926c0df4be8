#!/usr/bin/env python3
"""Which lines no test holds: changes one operator at a time in a copy of the repository and runs the tests of its crate.

    tests/mutants.py crates/cache/src/disk/room.rs ...      all files of cache and mount where none is named
    tests/mutants.py --sample 20 --seed 7 FILE ...          so many of each file, by chance from a seed

A mutant that no test fails on is printed as it lies in the file; so is one whose tests take five times as long as those of the
code as it is. That is one that hangs, or that makes a busy machine slow: it is counted apart. It understands no more of Rust than lines: comments,
texts and tests are left alone, and a mutant that doesn't compile is not counted. The copy and what is built of it stay
in target/mutants, so that the next mutant compiles one crate. Hours for everything; minutes for a file.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "target/mutants/tree"
TEST = ["cargo", "test", "--release", "--locked"]
# So many times as long as without a mutant, and no less than this: tests of a blink vary by more.
TIMES, SECONDS_MIN = 5, 10

# What is looked for in code, and what stands there instead.
CHANGES = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "),
    (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r"\.max\(", ".min("), (r"\.min\(", ".max("), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<=[ (])!(?=[a-z])", ""), (r"\bif (?!let)(?=[a-z])", "if !"), (r"\.is_some\(\)", ".is_none()"),
    (r"\.is_none\(\)", ".is_some()"), (r"\.is_empty\(\)", ".is_empty() == false"), (r"\.any\(", ".all("),
    (r"\.all\(", ".any("), (r"\.\.=", ".."), (r"\bSome\(\w+\)$", "None"),
]
# What is compiled for tests only.
TESTS = re.compile(r"/(tests|histories)\b|/table/model\.rs$")
# A call that stands alone on its line, so that it can be left out.
STATEMENT = re.compile(r"^\s+[a-z_][\w.]*(\.[a-z_]\w*|::\w+)\(.*\);$")


def code(line):
    """The line with texts and its comment blanked, as long as before."""
    line = re.sub(r'"(\\.|[^"\\])*"', lambda text: '"' + "." * (len(text[0]) - 2) + '"', line)
    return re.sub(r"//.*$", lambda text: " " * len(text[0]), line)


def mutants(path):
    """(number of the line, what it becomes), for all lines before the tests of the file."""
    for number, line in enumerate(path.read_text().split("\n")):
        if line.startswith("#[cfg(test)]"):
            return
        plain = code(line)
        if plain.lstrip().startswith(("#", "use ", "fn ", "pub fn ", "impl", "where", "const _")):
            continue
        for old, new in CHANGES:
            for found in re.finditer(old, plain):
                yield number, line[: found.start()] + new + line[found.end() :]
        if STATEMENT.match(plain) and "assert" not in plain:
            yield number, ""


def targets_of(package):
    """The tests of a package in the order in which they are run. Most mutants fall by those beside the code."""
    beside = (ROOT / "crates" / package.removeprefix("stoker-") / "tests").glob("*.rs")
    others = [name for path in sorted(beside) if path.stem != "histories" for name in ("--test", path.stem)]
    return [["--lib"], others] if others else [["--lib"]]


def limits_of(package):
    """What the tests of a package may take, by those of the code as it is."""
    limits = []
    for targets in targets_of(package):
        ended, took = run([*TEST, "-p", package, *targets], None)
        if ended != "passed":
            sys.exit(f"the tests of {package} fail without any mutant")
        limits.append(max(SECONDS_MIN, TIMES * took))
    return limits


def tests(package, limits):
    """How the tests of a package end: passed, failed, hung or not compiled."""
    for targets, limit in zip(targets_of(package), limits):
        ended, _ = run([*TEST, "-p", package, *targets], limit)
        if ended != "passed":
            break
    return ended


def run(command, limit):
    """How tests ended, and the seconds that they took after they were built."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(ROOT / "target/mutants/built"), CARGO_INCREMENTAL="1")
    # Compiled fast: what is waited for is the compiler.
    environment.update(RUST_BACKTRACE="0", CARGO_PROFILE_RELEASE_OPT_LEVEL="1", CARGO_PROFILE_RELEASE_DEBUG="false")
    built = subprocess.run([*command, "--no-run"], cwd=COPY, env=environment, capture_output=True)
    if built.returncode != 0:
        return "not compiled", 0
    began = time.monotonic()
    tests = subprocess.Popen(
        command, cwd=COPY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    over = threading.Timer(limit, os.killpg, (tests.pid, signal.SIGKILL))
    if limit is not None:
        over.start()
    # The first test that fails has told enough.
    failed = any(line.endswith(b"... FAILED\n") for line in tests.stdout)
    if failed and tests.poll() is None:
        os.killpg(tests.pid, signal.SIGKILL)
    code = tests.wait()
    hung = limit is not None and not over.is_alive()
    over.cancel()
    ended = "failed" if failed else "hung" if hung else "passed" if code == 0 else "failed"
    return ended, time.monotonic() - began


def judge(name, chosen, limits):
    """How many mutants of a file ended in which way."""
    path, package = COPY / name, "stoker-" + name.split("/")[1]
    whole = path.read_text()
    counts = {"passed": 0, "failed": 0, "hung": 0, "not compiled": 0}
    for number, changed in chosen:
        lines = whole.split("\n")
        was, lines[number] = lines[number], changed
        path.write_text("\n".join(lines))
        try:
            ended = tests(package, limits[package])
        finally:
            path.write_text(whole)
        counts[ended] += 1
        if ended in ("passed", "hung"):
            fate = "survived" if ended == "passed" else "hung"
            print(f"{name}:{number + 1}: {fate}\n  - {was.strip()}\n  + {changed.strip()}", flush=True)
    return counts


def told(name, counts):
    total = counts["failed"] + counts["hung"] + counts["passed"]
    if total:
        percent = 100 * counts["failed"] // total
        print(f"{name}: {counts['failed']} of {total} killed, {percent} %; {counts['hung']} hung", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int, help="mutants of each file; all where it is not given")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    folders = [ROOT / "crates" / name / "src" for name in ("cache", "mount")]
    everything = [str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.rs")]
    files = asked.files or sorted(name for name in everything if not TESTS.search(name))
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if (ROOT / name).is_file():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            # Times are kept, so that only what changed is built.
            shutil.copy2(ROOT / name, COPY / name)
    # What a run that was killed had built of a mutant is not taken for this.
    for name in filter(lambda name: (COPY / name).is_file(), everything):
        (COPY / name).touch()
    limits = {package: limits_of(package) for package in sorted({"stoker-" + name.split("/")[1] for name in files})}
    chance, all_counts = random.Random(asked.seed), Counter()
    for name in files:
        chosen = list(mutants(COPY / name))
        if asked.sample and len(chosen) > asked.sample:
            chosen = sorted(chance.sample(chosen, asked.sample))
        counts = judge(name, chosen, limits)
        all_counts.update(counts)
        told(name, counts)
    told("all", all_counts)


if __name__ == "__main__":
    main()
