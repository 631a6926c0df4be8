"""Whether readers in Python hang, get each other's answers or leave descriptors behind, over the ways in which processes are
started.

    /usr/bin/python3 benchmarks/python/processes.py target/release/stoker --out runs/<date>-python-processes

Runs of fork, spawn and forkserver in turn, each with a DataLoader of PyTorch (where it is installed) and with a pool of processes
that live for one task, as Ray's do. Each run is a process of its own that was forked from one that uses the client, goes on with
that client and gives it to its workers, which inherit it where they are forks and are sent a pickle otherwise; one that takes longer than
five minutes is a hang. Descriptors are counted before the first run and after the last. Then so many reads in a process that may have 64 of
them, each compared by its CRC-32.
"""

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))

import stoker  # noqa: E402
import stoker.torch  # noqa: E402
from stoker import _place  # noqa: E402

FILES = 256
BATCH = 64
HANGS_AFTER = 300.0
#: Until the node has let go of what processes that ended had of it.
SETTLES = 2.0

#: How a run ended, by its exit code.
RIGHT, MIXED, FAILED = 0, 3, 4


def content(number):
    """Another for each file, and told by the file's name."""
    return random.Random(number).randbytes(2000 + number)


def wrong(data, numbers):
    found = data.read_many(["%06d" % number for number in numbers])
    return sum(content(number) != one for number, one in zip(numbers, found))


def task(data, seed):
    """What a short process does: a batch, and the same batch once more on the same connection."""
    numbers = random.Random(seed).sample(range(FILES), BATCH)
    return wrong(data, numbers) + wrong(data, numbers)


def begin(data):
    """In a worker: a fork has the very client that it inherited, for what starts a process is pickled for others alone."""
    global given
    given = data


def task_given(seed):
    return task(given, seed)


def pool(data, kind, seed):
    context = multiprocessing.get_context(kind)
    with context.Pool(4, begin, (data,), maxtasksperchild=1) as workers:
        asked = [workers.apply_async(task_given, (seed * 100 + number,)) for number in range(8)]
        # The one that was used before is used meanwhile.
        return task(data, seed) + sum(one.get() for one in asked)


def loader(data, kind, seed):
    import torch.utils.data

    files = stoker.torch.Files(data)
    torch.manual_seed(seed)
    numbers = torch.randperm(FILES).tolist()
    loader = torch.utils.data.DataLoader(
        files, BATCH // 4, sampler=numbers, num_workers=2, multiprocessing_context=kind, collate_fn=list
    )
    found = [one for batch in loader for one in batch]
    return task(data, seed) + sum(content(number) != one for number, one in zip(numbers, found)) + (len(found) != FILES)


FORMS = {"DataLoader": loader, "pool": pool}


def run(data, kind, form, seed):
    """One run in a process of its own."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        code = FAILED
        try:
            code = MIXED if FORMS[form](data, kind, seed) else RIGHT
        except BaseException as error:
            print("%s %s %d: %r" % (kind, form, seed, error), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < began + HANGS_AFTER:
        # The client is in use here as well.
        if wrong(data, random.Random(seed).sample(range(FILES), 4)):
            status = MIXED << 8
            break
        time.sleep(0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status) if ended or status else None
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not ended:
        os.waitpid(child, 0)
    outcome = {RIGHT: "right", MIXED: "mixed", None: "hung"}.get(code, "failed")
    return {"kind": kind, "form": form, "outcome": outcome, "seconds": round(time.monotonic() - began, 3)}


def descriptors(data, node):
    """Those of reader and node, on one connection."""
    data.look(["000000"])
    time.sleep(SETTLES)
    return [len(os.listdir("/proc/%s/fd" % pid)) for pid in ("self", node)]


def sides(before, after):
    return {side: {"before": before[at], "after": after[at]} for at, side in enumerate(("reader", "node"))}


def many_reads(data, node, reads):
    """Descriptors of reader and node before and after so many reads, where the reader may have 64."""
    numbers = list(range(FILES))
    chance = random.Random(1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        for at in range(0, FILES, BATCH):
            assert not wrong(data, numbers[at : at + BATCH])
        names = ["%06d" % number for number in numbers]
        sums = {name: zlib.crc32(content(number)) for name, number in zip(names, numbers)}
        before = descriptors(data, node)
        done, bad, began = 0, 0, time.monotonic()
        while done < reads:
            some = chance.sample(names, BATCH)
            found = data.read_many(some)
            bad += sum(zlib.crc32(one) != sums[name] for name, one in zip(some, found))
            done += len(found)
        seconds = time.monotonic() - began
        after = descriptors(data, node)
        bad += wrong(data, numbers[:BATCH])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return {"reads": done, "wrong": bad, "seconds": round(seconds, 1), "descriptors": sides(before, after)}


def main():
    words = argparse.ArgumentParser()
    words.add_argument("program")
    words.add_argument("--runs", type=int, default=200)
    words.add_argument("--reads", type=int, default=1_000_000)
    words.add_argument("--out", default=None)
    asked = words.parse_args()
    scratch = tempfile.mkdtemp(prefix="stoker-processes-")
    program = os.path.abspath(asked.program)
    os.environ.update(STOKER_BIN=program, STOKER_RUNTIME_DIR=scratch + "/run", HOME=scratch)
    for name in [name for name in os.environ if name.startswith("AWS_") or name == "STOKER_SOCKET"]:
        del os.environ[name]
    bucket = os.path.join(scratch, "bucket")
    os.mkdir(bucket)
    for number in range(FILES):
        path = os.path.join(bucket, "%06d" % number)
        with open(path, "wb") as file:
            file.write(content(number))
        os.utime(path, (1_600_000_000, 1_600_000_000))
    words = [program, "emulate", bucket, "--bucket", "bucket", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    forms = list(FORMS)
    try:
        import torch

        version = torch.__version__
    except ImportError:
        print("SKIPPED: torch is not installed, so pools alone are run", file=sys.stderr)
        forms, version = ["pool"], None
    kinds, found = ("fork", "spawn", "forkserver"), []
    try:
        line = server.stdout.readline()
        while "http://" not in line:
            line = server.stdout.readline()
        endpoint = "http://" + line.split("http://", 1)[1].split()[0].rstrip("/").replace("/bucket", "")
        reach = {"endpoint": endpoint, "region": "us-east-1", "anonymous": True, "cache": scratch + "/cache"}
        data = stoker.open("s3://bucket", **reach)
        assert not wrong(data, list(range(FILES))), "used before any fork"
        node = stoker.status(cache=reach["cache"])["pid"]
        before = descriptors(data, node)
        for number in range(asked.runs):
            found.append(run(data, kinds[number % 3], forms[number // 3 % len(forms)], number))
            print(number, found[-1], file=sys.stderr, flush=True)
        held = sides(before, descriptors(data, node))
        reads = many_reads(data, node, asked.reads)
        print(reads, file=sys.stderr, flush=True)
        data.close()
        os.kill(node, signal.SIGTERM)
        while any(one.poll() is None for one in _place._started):
            time.sleep(0.05)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(scratch, ignore_errors=True)
    setup = {"python": platform.python_version(), "torch": version, "kernel": platform.release(), "cpus": os.cpu_count()}
    result = {"setup": setup, "runs": found, "descriptors": held, "reads": reads}
    if asked.out:
        os.makedirs(asked.out, exist_ok=True)
        with open(os.path.join(asked.out, "raw.json"), "w") as file:
            # A run a line.
            rows = ",\n  ".join(json.dumps(one) for one in found)
            heads = json.dumps(setup), json.dumps(held), json.dumps(reads)
            file.write('{"setup": %s,\n "descriptors": %s,\n "reads": %s,\n "runs": [\n  %s\n ]}\n' % (*heads, rows))
        with open(os.path.join(asked.out, "notes.md"), "w") as file:
            file.write(notes(result))
    else:
        print(notes(result))


def _said(sides):
    return ", ".join("%s %d and %d" % (side, of_it["before"], of_it["after"]) for side, of_it in sides.items())


def notes(result):
    """What a person reads of it."""
    setup, reads, runs = result["setup"], result["reads"], result["runs"]
    rows = []
    for kind, form in sorted({(one["kind"], one["form"]) for one in runs}):
        of_it = [one for one in runs if (one["kind"], one["form"]) == (kind, form)]
        counts = [sum(one["outcome"] == outcome for one in of_it) for outcome in ("right", "mixed", "hung", "failed")]
        longest = max(one["seconds"] for one in of_it)
        rows.append("| %s | %s | %d | %s | %.1f s |" % (kind, form, len(of_it), " | ".join(map(str, counts)), longest))
    return """# Readers in Python: processes of each kind

`benchmarks/python/processes.py`, Python %s, torch %s, Linux %s, %d processors. Times are shown to tell a run from a hang, and are
no measurement: the machine did other work meanwhile.

| processes by | through | runs | right | mixed up | hung | failed | longest |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
%s

Each run was forked from a process that had used the client and went on using it. Pools are of %s tasks, a process each: the pattern
of Ray, without Ray itself. Forks use the client that they inherit, others one that was pickled. Descriptors before the first run and
after the last: %s.

%s reads with RLIMIT_NOFILE 64, in batches, each compared by its CRC-32: %d wrong, %.0f s. Descriptors before and after: %s.
""" % (
        setup["python"],
        setup["torch"] or "not installed",
        setup["kernel"],
        setup["cpus"],
        "\n".join(rows),
        8,
        _said(result["descriptors"]),
        format(reads["reads"], ","),
        reads["wrong"],
        reads["seconds"],
        _said(reads["descriptors"]),
    )


if __name__ == "__main__":
    main()
