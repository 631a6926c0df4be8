#!/usr/bin/env python3
"""Which lines no test holds: changes one operator at a time in a copy of the repository and runs the tests of its crate.

    tests/mutants.py crates/cache/src/disk/room.rs ...      all files of cache and mount where none is named
    tests/mutants.py --sample 20 --seed 7 FILE ...          so many of each file, by chance from a seed

A mutant that no test fails on is printed as it lies in the file. It understands no more of Rust than lines: comments,
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "target/mutants/tree"
TEST = ["cargo", "test", "--release", "--locked"]
# A test that hangs on a mutant has noticed it: a wait that never ends is no pass.
SECONDS = int(os.environ.get("MUTANT_SECONDS", "60"))

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


def tests(package, limit):
    """How the tests of a package end: passed, failed, hung or not compiled. Most mutants fall by those beside the code."""
    beside = (ROOT / "crates" / package.removeprefix("stoker-") / "tests").glob("*.rs")
    others = [name for path in sorted(beside) if path.stem != "histories" for name in ("--test", path.stem)]
    for targets in (["--lib"], others):
        ended = run([*TEST, "-p", package, *targets], limit) if targets else "passed"
        if ended != "passed":
            break
    return ended


def run(command, limit):
    environment = dict(os.environ, CARGO_TARGET_DIR=str(ROOT / "target/mutants/built"), CARGO_INCREMENTAL="1")
    # Compiled fast: what is waited for is the compiler.
    environment.update(RUST_BACKTRACE="0", CARGO_PROFILE_RELEASE_OPT_LEVEL="1", CARGO_PROFILE_RELEASE_DEBUG="false")
    built = subprocess.run([*command, "--no-run"], cwd=COPY, env=environment, capture_output=True)
    if built.returncode != 0:
        return "not compiled"
    tests = subprocess.Popen(
        command, cwd=COPY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    over = threading.Timer(limit, os.killpg, (tests.pid, signal.SIGKILL))
    over.start()
    # The first test that fails has told enough.
    failed = any(line.endswith(b"... FAILED\n") for line in tests.stdout)
    if failed and tests.poll() is None:
        os.killpg(tests.pid, signal.SIGKILL)
    code = tests.wait()
    hung = not over.is_alive()
    over.cancel()
    return "failed" if failed else "hung" if hung else "passed" if code == 0 else "failed"


def judge(name, chosen):
    """Killed and surviving mutants of a file."""
    path, package = COPY / name, "stoker-" + name.split("/")[1]
    whole = path.read_text()
    counts = {"passed": 0, "failed": 0, "hung": 0, "not compiled": 0}
    for number, changed in chosen:
        lines = whole.split("\n")
        was, lines[number] = lines[number], changed
        path.write_text("\n".join(lines))
        try:
            ended = tests(package, SECONDS)
        finally:
            path.write_text(whole)
        counts[ended] += 1
        if ended == "passed":
            print(f"{name}:{number + 1}: survived\n  - {was.strip()}\n  + {changed.strip()}", flush=True)
    return counts["failed"] + counts["hung"], counts["passed"]


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
    for package in sorted({"stoker-" + name.split("/")[1] for name in files}):
        if tests(package, SECONDS) != "passed":
            sys.exit(f"the tests of {package} fail without any mutant")
    chance, killed, survived = random.Random(asked.seed), 0, 0
    for name in files:
        chosen = list(mutants(COPY / name))
        if asked.sample and len(chosen) > asked.sample:
            chosen = sorted(chance.sample(chosen, asked.sample))
        dead, alive = judge(name, chosen)
        killed, survived = killed + dead, survived + alive
        if dead + alive:
            print(f"{name}: {dead} of {dead + alive} killed, {100 * dead // (dead + alive)} %", flush=True)
    total = killed + survived
    print(f"all: {killed} of {total} killed, {100 * killed // max(total, 1)} %")


if __name__ == "__main__":
    main()
