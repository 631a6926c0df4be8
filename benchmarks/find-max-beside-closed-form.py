#!/usr/bin/env python3
"""How many accelerators `stoker bench train --find-max` finds to be kept busy by shaped disks, beside the closed form.

    python3 benchmarks/find-max-beside-closed-form.py STOKER FOLDER [CASE...] > raw.jsonl

A disk that gives `share` times what one accelerator demands keeps floor(share / 0.9) of them at 90 %. All samples of a case are of one
size. Nothing expected is taken from a run, from the probe or from the simulator. Of resnet50 on H100 a batch and its step are both
divided by eight: the rate is the same, and the set that a valid run takes fits into memory. Makes up to 5 GB in a folder of its own
below FOLDER (tmpfs will do: the shape is slower) and removes it. Takes a quarter of an hour, and prints a line of JSON a case.
"""
import json, math, os, shutil, subprocess, sys, tempfile

STOKER = sys.argv[1]
FOLDER = tempfile.mkdtemp(prefix="find-max-", dir=sys.argv[2])
ONLY = sys.argv[3:]
PASS = 90

# name: format, samples in a file, bytes of a sample, batch, step in seconds, threads, batches ahead, order, share, most tried
CASES = {
    "resnet50 on H100, requests plenty": ("tfrecord", 1251, 114_660, 50, 0.028, 8, 8, "sequential", 2.75, 4),
    "files of 4 MiB, few": ("raw", 1, 4 << 20, 2, 0.2, 4, 4, "shuffled", 3.3, 5),
    "files of 20 kB, many accelerators": ("raw", 1, 20_000, 4, 0.2, 4, 4, "shuffled", 45.5, 64),
}


def run(name):
    format, samples, sample, batch, step, threads, ahead, order, share, most = CASES[name]
    stored = sample + (16 if format == "tfrecord" else 0)
    demand = batch / step * stored
    expected = math.floor(share * 100 / PASS + 1e-9)
    files = math.ceil(22 * ahead * batch * most * 1.02 / samples)
    workload = os.path.join(FOLDER, "workload.toml")
    with open(workload, "w") as file:
        file.write(f'name = "closed-form"\nsource = "benchmarks/find-max-beside-closed-form.py"\n[files]\nformat = "{format}"\n'
                   f"count = {files}\nsamples_per_file = {samples}\nsample_bytes = {sample}\n[read]\nbatch = {batch}\n"
                   f'threads = {threads}\nprefetch_batches = {ahead}\norder = "{order}"\nepochs = 1\npass_au_percent = {PASS}\n')
    made = os.path.join(FOLDER, "set")
    shutil.rmtree(made, ignore_errors=True)
    subprocess.run([STOKER, "bench", "data", made, "--workload", workload], check=True, stdout=subprocess.DEVNULL)
    saved = os.path.join(FOLDER, "saved.json")
    command = [STOKER, "bench", "train", "--workload", workload, "--accelerator", "fixed", "--accelerators", str(most), "--find-max",
               "--save", saved, "--set", f"step={step * 1e3:g}ms", "--target", made, "--shape-disk", f"{math.ceil(share * demand)}B/s"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 3, 5), (command, done.stderr)
    with open(saved) as file:
        report = json.load(file)
    report.pop("timeline", None)
    found = {"case": name, "share": share, "closed_form": expected, "points": [[point["accelerators"], point["au_percent"]] for point in report["points"]],
             "sections": {name: value for name, value in report["sections"].items() if name != "probe"}, "load": os.getloadavg()[0], "report": report}
    print(json.dumps(found), flush=True)
    at = dict(found["points"])
    passing = report["sections"]["find_max"]["accelerators"] or 0
    print(f"{name:40} closed {expected:4d}  found {passing:4d}  tried {sorted(at.items())}  load {found['load']:.1f}", file=sys.stderr, flush=True)
    return abs(passing - expected) <= max(1, 0.02 * expected)


try:
    hold = [run(name) for name in CASES if not ONLY or name in ONLY]
finally:
    shutil.rmtree(FOLDER)
sys.exit(0 if all(hold) else 1)
