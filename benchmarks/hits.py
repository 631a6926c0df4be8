#!/usr/bin/env python3
"""What whole epochs ask of the store, through a real mount: hits against what a cache of that size allows.

    python3 benchmarks/hits.py STOKER FOLDER MEMORY_MIB        (root; up to 8 GB in FOLDER)

Files are full of zeros and take no space at the store. Four threads read them whole, in a fresh order each epoch; the
row of eight workers has eight that open each file in the same order. Bytes are counted by the node (`stoker status`).
"""
import json, os, random, subprocess, sys, threading, time

STOKER, FOLDER = sys.argv[1], sys.argv[2]
EPOCHS, MEMORY = 4, int(sys.argv[3]) << 20
#        bytes, files, cache / set, fill, workers that open each file
CELLS = [(100_000, 20_000, .5, "auto", 1), (17_000_000, 60, .5, "auto", 1), (17_000_000, 60, .5, "off", 8),
         (64_000_000, 50, .3, "off", 1), (200_000_000, 50, .7, "auto", 1), (1_000_000_000, 4, .5, "auto", 1)]


def run(*words):
    return subprocess.run([STOKER, *words], check=True, capture_output=True, text=True).stdout


def read(paths, lock):
    while True:
        with lock:
            if not paths:
                return
            path = paths.pop()
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def epoch(paths, workers):
    order = random.sample(paths, len(paths))
    shared = (order, threading.Lock())
    jobs = [shared] * 4 if workers == 1 else [(list(order), threading.Lock()) for _ in range(workers)]
    threads = [threading.Thread(target=read, args=job) for job in jobs]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def store_bytes(mount):
    found = json.loads(run("status", mount, "--json"))
    nodes = found if isinstance(found, list) else found.get("nodes", [found])
    return sum(node["store"]["bytes"] for node in nodes)


def play(bytes_, files, ratio, fill, workers):
    random.seed(7)
    data, cache, mount = (os.path.join(FOLDER, name) for name in ("data", "cache", "mount"))
    subprocess.run(["rm", "-rf", data, cache], check=True)
    os.makedirs(data + "/b"), os.makedirs(mount, exist_ok=True)
    for n in range(files):
        os.makedirs(f"{data}/b/{n // 100}", exist_ok=True)
        with open(f"{data}/b/{n // 100}/{n}", "wb") as file:
            file.truncate(bytes_)
    total = bytes_ * files
    server = subprocess.Popen([STOKER, "emulate", data], stdout=subprocess.PIPE, text=True)
    try:
        endpoint = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        keys = {"AWS_ACCESS_KEY_ID": "stoker", "AWS_SECRET_ACCESS_KEY": "stoker"}
        os.environ.update(keys)
        run("mount", "-d", "s3://b", mount, "--endpoint", endpoint, "--cache", cache, "--fill", fill, "--cache-size",
            f"{int(total * ratio)}B", "--memory", f"{MEMORY}B")
        paths = [os.path.join(root, name) for root, _, names in os.walk(mount) for name in names]
        asked = []
        for _ in range(EPOCHS + 1):
            before = store_bytes(mount)
            epoch(paths, workers)
            asked.append((store_bytes(mount) - before) / total)
        return asked
    finally:
        subprocess.run([STOKER, "umount", mount])
        server.terminate(), server.wait()


def allowed(bytes_, files, ratio):
    capacity = int(bytes_ * files * ratio)
    piece = 16 << 20 if bytes_ > capacity // 4 and bytes_ > 16 << 20 else bytes_
    return capacity // piece * piece / (bytes_ * files)


print("| bytes of a file | files | cache / set | fill | opens of a file | allowed | memory / set "
      "| the first epoch asks, sets | 1 - what each later epoch asks |")
print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
for bytes_, files, ratio, fill, workers in CELLS:
    asked = play(bytes_, files, ratio, fill, workers)
    hits = " ".join(f"{1 - sets:.3f}" for sets in asked[1:])
    print(f"| {bytes_} | {files} | {ratio} | {fill} | {workers} | {allowed(bytes_, files, ratio):.3f} | "
          f"{MEMORY / bytes_ / files:.3f} | {asked[0]:.3f} | {hits} |", flush=True)
