#!/usr/bin/env python3
"""Large files with the page cache dropped, natively and through a mount that has all of them, in turns.

    python3 benchmarks/dropped.py STOKER STOKER-BENCHMARKS SERVER-DATA DATA FOLDER PAIRS

As root. SERVER-DATA and DATA: the folders that `stoker-benchmarks run` made, of the server and of the native files. FOLDER: 2 GB, for
the cache. Before each read 2 GiB are written and removed, since the host of a virtual machine takes free memory away; whether it did is seen by the
processor seconds of the reader. Prints each pair, then the median of the ratios.
"""
import json, os, statistics, subprocess, sys

STOKER, BENCH, SERVED, DATA, FOLDER, PAIRS = *sys.argv[1:6], int(sys.argv[6])
BYTES = 8 * 140e6


def dropped():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
    filler = os.path.join(FOLDER, "filler")
    with open(filler, "wb") as file:
        for _ in range(2048):
            file.write(b"\1" * (1 << 20))
    os.remove(filler)


def read(root, phase):
    words = [BENCH, "read", "--root", root, "--workload", "large4", "--phase", phase]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert found["errors"] == found["wrong_tags"] == 0 and found["bytes"] == BYTES, found
    return BYTES / 1e6 / found["seconds"], found["cpu_seconds"]


cache, mount = os.path.join(FOLDER, "cache"), os.path.join(FOLDER, "mount")
os.makedirs(mount, exist_ok=True)
server = subprocess.Popen([STOKER, "emulate", SERVED], stdout=subprocess.PIPE, text=True)
try:
    endpoint = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
    subprocess.run([STOKER, "mount", "-d", "s3://training", mount, "--endpoint", endpoint, "--anonymous", "--cache", cache],
                   check=True, capture_output=True)
    read(mount, "cold")
    ratios = []
    for pair in range(PAIRS):
        rates = {}
        turns = {"native": DATA, "stoker": mount}
        for name in sorted(turns, reverse=pair % 2 == 1):
            dropped()
            rates[name], cpu = read(turns[name], "dropped")
            print(f"pair {pair}: {name} {rates[name]:.0f} MB/s, {cpu:.2f} CPU s", flush=True)
        ratios.append(rates["stoker"] / rates["native"])
    print(f"Stoker at {statistics.median(ratios):.2f} of native ({min(ratios):.2f} to {max(ratios):.2f}), median of {PAIRS} pairs")
    subprocess.run([STOKER, "umount", mount], check=True, capture_output=True)
    subprocess.run(["rm", "-rf", cache], check=True)
finally:
    server.terminate(), server.wait()
