#!/usr/bin/env python3
"""Utilisation that `stoker bench train` measures on shaped disks and stores, beside what arithmetic says: 8 shapes, 4 workloads.

    python3 benchmarks/au-beside-closed-form.py STOKER FOLDER > raw.jsonl

All samples of a workload are of one size, and one accelerator asks for them, so that nothing is left to chance: what storage
gives is the least of its bandwidth over the bytes of a sample, its requests over the requests of a sample, and the streams over
the time of one sample in a stream; utilisation is that over the demand, and 100 % at most. None of it is taken from a run, from
the probe or from the simulator. Beside them a fifth workload, a 3D U-Net at a thousandth of its size: eight accelerators, samples of
random sizes, a barrier after each step; for it an independent model of 180 of them behind a link of .483 of their demand says 48.3 %
(its bound) to 48.8 %, and 100 % with plenty. Makes some gigabytes in a folder of its own below FOLDER and removes it. Takes half an hour, and prints a line of JSON a run.
"""
import json, math, os, re, shutil, subprocess, sys, tempfile

STOKER = sys.argv[1]
FOLDER = tempfile.mkdtemp(prefix="closed-form-", dir=sys.argv[2])
ONLY = sys.argv[3:]
MIB = 1 << 20

# name: format, samples in a file, bytes of a sample, batch, step in seconds, threads, order, files
WORKLOADS = {
    "large files": ("raw", 1, 4 * MIB, 2, 0.1, 4, "shuffled", 260),
    "small files": ("raw", 1, 100_000, 16, 0.04, 4, "shuffled", 2_400),
    "packed, in order": ("tfrecord", 512, 114_660, 16, 0.04, 4, "sequential", 24),
    "packed, by chance": ("tfrecord", 500, 114_660, 16, 0.04, 4, "random", 24),
}
# The same, of samples of random sizes: mean and deviation of 3D U-Net in kilobytes for megabytes, its batch and a tenth of its step.
BARRIER = "random sizes, barrier"
WORKLOADS[BARRIER] = ("raw", 1, 146_600, 4, 0.13604, 4, "shuffled", 5_800)
DEVIATION, TOGETHER = 68_000, 8
MODEL = {0.483: (48.3, 48.8), 8: (100.0, 100.0)}
# name: of a disk or a store, bandwidth as a share of the demand, requests as a share of the demand, milliseconds of a request
# (or, below 1, as a share of the time that the streams have for one request)
SHAPES = {
    "disk, bandwidth .5": ("disk", 0.5, 8, 0),
    "disk, bandwidth .85": ("disk", 0.85, 8, 0),
    "disk, reads .5": ("disk", 8, 0.5, 0),
    "disk, plenty": ("disk", 8, 8, 0),
    "store, bandwidth .6": ("store", 0.6, None, 2),
    "store, latency .5": ("store", None, None, "half"),
    "store, requests .6": ("store", None, 0.6, 2),
    "store, plenty": ("store", 8, None, 2),
}
BARRIER_SHAPES = {
    "disk, bandwidth .483": ("disk", 0.483, 64, 0),
    "disk, plenty": ("disk", 8, 64, 0),
    "store, bandwidth .483": ("store", 0.483, None, 2),
    "store, plenty": ("store", 8, None, 2),
}


def requests_of(format, sample, batch, order, where):
    """Reads of a sample: docs/report.md, of 1 MiB from a folder and 16 MiB from a store; packed in order, those that a batch shares."""
    piece = MIB if where == "disk" else 16 * MIB
    if format != "raw" and order == "sequential":
        return math.ceil(batch * (sample + 16) / piece) / batch
    return math.ceil(sample / piece)


def run(name, shape):
    format, samples, sample, batch, step, threads, order, files = WORKLOADS[name]
    is_random = name == BARRIER
    where, bandwidth, operations, latency = (BARRIER_SHAPES if is_random else SHAPES)[shape]
    accelerators = TOGETHER if is_random else 1
    demand = accelerators * batch / step
    each = requests_of(format, sample, batch, order, where)
    stored = sample + (16 if format == "tfrecord" else 0)
    limits, words = [], []
    seconds = 0 if latency == 0 else (2 * threads / (demand * each) if latency == "half" else latency / 1e3)
    if bandwidth:
        rate = math.ceil(bandwidth * demand * stored)
        limits.append(rate / stored)
        words.append(f"{rate}B/s")
    if operations:
        rate = math.ceil(operations * demand * each)
        limits.append(rate / each)
        words.append(f"{rate}iops")
    if seconds:
        limits.append(accelerators * threads / (each * seconds))
    expected = MODEL[bandwidth] if is_random else [min(100.0, 100 * min(limits) / demand)] * 2
    workload = os.path.join(FOLDER, "workload.toml")
    with open(workload, "w") as file:
        file.write(f'name = "closed-form"\nsource = "benchmarks/au-beside-closed-form.py"\n[files]\nformat = "{format}"\n'
                   f"count = {files}\nsamples_per_file = {samples}\nsample_bytes = {sample}\n"
                   + (f"sample_bytes_stdev = {DEVIATION}\n" if is_random else "") +
                   f"[read]\nbatch = {batch}\n"
                   f'threads = {threads}\nprefetch_batches = 4\norder = "{order}"\nepochs = 1\npass_au_percent = 90\n')
    made = os.path.join(FOLDER, "buckets", re.sub("[^a-z]+", "-", name))
    if not os.path.isdir(made):
        subprocess.run([STOKER, "bench", "data", made, "--workload", workload], check=True, stdout=subprocess.DEVNULL)
    saved = os.path.join(FOLDER, "saved.json")
    command = [STOKER, "bench", "train", "--workload", workload, "--accelerator", "fixed", "--accelerators", str(accelerators), "--save", saved,
               "--set", f"step={step * 1e3:g}ms,steps=110"]
    server = None
    environment = dict(os.environ, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1")
    if where == "disk":
        command += ["--target", made, "--shape-disk", ",".join(words)]
    else:
        serve = [STOKER, "emulate", os.path.join(FOLDER, "buckets"), "--latency", f"{seconds * 1e3:g}ms"]
        for word in words:
            serve += ["--bandwidth", word] if word.endswith("B/s") else ["--requests-per-second", word[:-4]]
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        endpoint = re.search(r"http://[0-9.:]+", server.stdout.readline()).group()
        command += ["--target", f"s3://{os.path.basename(made)}", "--endpoint", endpoint]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    finally:
        if server:
            server.terminate()
            server.wait()
    assert done.returncode in (0, 3, 5), (command, done.stderr)
    with open(saved) as file:
        report = json.load(file)
    epoch = report["epochs"][0]
    found = {"workload": name, "shape": shape, "limits": words + ([f"{seconds * 1e3:g}ms"] if seconds else []),
             "expected_percent": expected, "au_percent": epoch["au_percent"], "bound_percent": epoch.get("bound_percent"),
             "share_of_bound_percent": epoch.get("share_of_bound_percent"), "steps_counted": epoch.get("steps_counted"),
             "limited_by": report["summary"].get("limited_by"), "verdict": report["summary"].get("verdict"),
             "reason": report["summary"].get("reason"), "failed_checks": report["sections"].get("failed_checks"),
             "load": os.getloadavg()[0], "report": report}
    print("{workload:18} {shape:20} expected {expected_percent[0]:6.2f}  measured {au_percent:6.2f}  bound {bound_percent}  "
          "{limited_by}  {verdict}  load {load:.1f}".format(**found), file=sys.stderr, flush=True)
    report.pop("timeline", None)
    print(json.dumps(found), flush=True)
    return found


os.makedirs(os.path.join(FOLDER, "buckets"))
try:
    cells = [(name, shape) for name in WORKLOADS for shape in (BARRIER_SHAPES if name == BARRIER else SHAPES)]
    raw = [run(name, shape) for name, shape in cells if not ONLY or name in ONLY or shape in ONLY or f"{name}: {shape}" in ONLY]
finally:
    shutil.rmtree(FOLDER)
off = lambda found: max(found["expected_percent"][0] - found["au_percent"], found["au_percent"] - found["expected_percent"][1])
worst = max(off(found) for found in raw)
print(f"worst: {worst:.2f} points", file=sys.stderr)
