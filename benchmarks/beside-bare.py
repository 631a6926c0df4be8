#!/usr/bin/env python3
"""Large files, cold, through Stoker beside a bare program that brings the same ranges (benchmarks/src/bare.rs), without and
with a mount that hands out zeros, in turns.

    python3 benchmarks/beside-bare.py STOKER STOKER-BENCHMARKS SERVER-DATA FOLDER PAIRS IN-FLIGHT

As root. SERVER-DATA: the folder that `stoker-benchmarks run` made, with the bucket in it. FOLDER: 2 GB, for caches. CPU: of the
reader and of Stoker's node; of the bare program; of the server beside each. Prints each pair, then medians.
"""
import json, os, statistics, subprocess, sys, time

STOKER, BENCH, DATA, FOLDER, PAIRS, IN_FLIGHT = *sys.argv[1:5], int(sys.argv[5]), sys.argv[6]
BUCKET, BYTES = "training", 8 * 140e6
TICK = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def fresh():
    """Memory that the host took away costs whoever asks for it first: take it before either begins."""
    filler = os.path.join(FOLDER, "filler")
    with open(filler, "wb") as file:
        for _ in range(2048):
            file.write(b"\1" * (1 << 20))
    os.remove(filler)
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def measured(*words):
    return json.loads(subprocess.run([BENCH, *words], check=True, capture_output=True, text=True).stdout)


def through_stoker(server, endpoint):
    cache, mount = os.path.join(FOLDER, "cache"), os.path.join(FOLDER, "mount")
    os.makedirs(mount, exist_ok=True)
    subprocess.run([STOKER, "mount", "-d", f"s3://{BUCKET}", mount, "--endpoint", endpoint, "--anonymous", "--cache", cache],
                   check=True, capture_output=True)
    node = json.loads(subprocess.run([STOKER, "status", mount, "--json"], check=True, capture_output=True).stdout)["pid"]
    before, of_server = cpu(node), cpu(server)
    found = measured("read", "--root", mount, "--workload", "large4", "--phase", "cold")
    time.sleep(1)
    found["cpu"], found["server"] = found["cpu_seconds"] + cpu(node) - before, cpu(server) - of_server
    subprocess.run([STOKER, "umount", mount], check=True, capture_output=True)
    subprocess.run(["rm", "-rf", cache], check=True)
    return found


def bare(server, endpoint):
    into = os.path.join(FOLDER, "bare")
    os.makedirs(into)
    of_server = cpu(server)
    found = measured("bare", "--server", endpoint.split("//")[1], "--bucket", BUCKET, "--into", into, "--in-flight", IN_FLIGHT)
    found["cpu"], found["server"] = found["cpu_seconds"], cpu(server) - of_server
    subprocess.run(["rm", "-rf", into], check=True)
    return found


def bare_mounted(server, endpoint):
    into, mount = os.path.join(FOLDER, "bare"), os.path.join(FOLDER, "mount")
    os.makedirs(into), os.makedirs(mount, exist_ok=True)
    program = subprocess.Popen([BENCH, "bare", "--server", endpoint.split("//")[1], "--bucket", BUCKET, "--into", into,
                                "--in-flight", IN_FLIGHT, "--mount", mount], stdout=subprocess.DEVNULL)
    while not os.path.ismount(mount):
        time.sleep(.01)
    before, of_server = cpu(program.pid), cpu(server)
    found = measured("read", "--root", mount, "--workload", "large4", "--phase", "cold")
    time.sleep(1)
    found["cpu"], found["server"] = found["cpu_seconds"] + cpu(program.pid) - before, cpu(server) - of_server
    subprocess.run(["umount", mount], check=True)
    program.wait()
    subprocess.run(["rm", "-rf", into], check=True)
    # What it hands on is zeros, which no tag is.
    found["wrong_tags"] = 0
    return found


server = subprocess.Popen([STOKER, "emulate", DATA], stdout=subprocess.PIPE, text=True)
try:
    endpoint = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
    runs = {"stoker": through_stoker, "bare": bare, "bare + FUSE": bare_mounted}
    seconds, costs = {name: [] for name in runs}, {name: [] for name in runs}
    for pair in range(PAIRS):
        results = {}
        names = list(runs)
        for name in names[pair % 3:] + names[:pair % 3]:
            fresh()
            found = results[name] = runs[name](server.pid, endpoint)
            assert found["errors"] == found["wrong_tags"] == 0 and found["bytes"] == BYTES, found
            costs[name].append(found["cpu"] / BYTES * 1e9)
            seconds[name].append(found["seconds"])
        print(f"pair {pair}: " + ", ".join(f"{name} {BYTES / 1e6 / found['seconds']:.0f} MB/s with {found['cpu'] / BYTES * 1e9:.2f} "
              f"(server {found['server'] / BYTES * 1e9:.2f}) CPU s/GB" for name, found in sorted(results.items()))
              , flush=True)
    for other in list(runs)[1:]:
        ratios = [theirs / ours for theirs, ours in zip(seconds[other], seconds["stoker"])]
        print(f"Stoker at {statistics.median(ratios):.3f} of {other} ({min(ratios):.3f} to {max(ratios):.3f}), median of {PAIRS} pairs")
    print(", ".join(f"{name} {statistics.median(cost):.2f} CPU s/GB" for name, cost in costs.items()))
finally:
    server.terminate(), server.wait()
