#!/usr/bin/env python3
"""What a first and a second epoch cost through each kind of store, beside what its server gives curl(1): `python3 benchmarks/stores.py OUT` (root; a release
build and `make servers` first; ten minutes). ROUNDS=3 of each; in every
second one curl comes after the first epoch and not before it. Rows go to OUT/rows.json.

2,000 images of 100 KB and two files of 64 MiB, read whole, images in a shuffled order, by 16 threads of 4 processes, each compared by a checksum
from before, so that no original is read meanwhile. A first epoch has an empty cache; for the
second the kernel has forgotten all that it had. curl reads the same images at once, 16 requests at a time, from the same server, and writes them nowhere.
"""
import hashlib, json, multiprocessing, os, random, shutil, statistics, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import servers

STOKER = servers.ROOT / "target/release/stoker"
OUT, ROUNDS = Path(sys.argv[1]).resolve(), int(os.environ.get("ROUNDS", 3))
IMAGES, IMAGE, LARGE, LARGE_BYTES = 2_000, 100_000, 2, 64 << 20
PROCESSES, THREADS = 4, 4
NAMES = [f"train/n{number // 100:03}/{number:05}.jpg" for number in range(IMAGES)]
BIG = [f"large/{number}" for number in range(LARGE)]


def checksum(path):
    return hashlib.sha256(path.read_bytes()).digest()


def read(job):
    """How many of these files, read whole, are not what they are to be."""
    at, sums = job
    def wrong(name):
        try:
            return checksum(Path(at, name)) != sums[name]
        except OSError:
            return True
    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(wrong, sums))


def epoch(pool, at, sums, seed):
    names = random.Random(seed).sample(list(sums), len(sums))
    jobs = [(at, {name: sums[name] for name in names[part::PROCESSES]}) for part in range(PROCESSES)]
    began = time.monotonic()
    wrong = sum(pool.map(read, jobs))
    return time.monotonic() - began, wrong


def processor(pid):
    """Seconds in user space and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(fields[which]) / os.sysconf("SC_CLK_TCK") for which in [11, 12]]


def curl(server, scratch):
    """Seconds in which the server's images come."""
    urls = scratch / "urls"
    urls.write_text("".join(f'url = "{server.path(name)}"\noutput = "/dev/null"\n' for name in NAMES))
    words = ["curl", "--silent", "--no-progress-meter", "--fail", "--parallel", "--parallel-max", str(PROCESSES * THREADS), *server.curl, "--config", urls]
    began = time.monotonic()
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def stoker(environment, *words):
    return subprocess.run([STOKER, *words], env=environment, check=True, capture_output=True, text=True).stdout


def round_of(server, pool, scratch, sums, number):
    at, cache = scratch / "mnt", scratch / "cache"
    environment = os.environ | {"STOKER_RUNTIME_DIR": str(scratch / "run")} | server.variables
    status = lambda: json.loads(stoker(environment, "status", at, "--json"))
    images, large = ({name: sums[name] for name in names} for names in [NAMES, BIG])
    row = {"store": server.name, "round": number, "curl_is_first": number % 2 == 0}
    if row["curl_is_first"]:
        row["curl_seconds"] = curl(server, scratch)
    stoker(environment, "mount", server.url, at, "--detach", "--cache", cache, "--fill", "off", *server.words)
    try:
        before = status()
        spent = processor(before["pid"])
        row["first_seconds"], wrong = epoch(pool, at, images, number)
        after = status()
        row["first_user"], row["first_kernel"] = (now - then for now, then in zip(processor(after["pid"]), spent))
        row |= {kind: after["store"][kind] - before["store"][kind] for kind in ["gets", "heads", "lists", "retries", "hedged", "errors"]}
        if not row["curl_is_first"]:
            row["curl_seconds"] = curl(server, scratch)
        row["large_seconds"], more = epoch(pool, at, large, number)
        row["large_gets"] = status()["store"]["gets"] - after["store"]["gets"]
        subprocess.run("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True, check=True)
        row["second_seconds"], again = epoch(pool, at, images, number)
        row["second_gets"] = status()["store"]["gets"] - after["store"]["gets"] - row["large_gets"]
        row["wrong"] = wrong + more + again
    finally:
        stoker(environment, "umount", at)
        shutil.rmtree(cache)
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def table(rows):
    lines = ["| store | images/s by curl | by Stoker, first epoch | of curl's | CPU of the node an image, µs, of it in the kernel | GET / HEAD / LIST an image | second epoch, images/s | 2 x 64 MiB, MB/s, GETs |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for store in dict.fromkeys(row["store"] for row in rows):
        own = [row for row in rows if row["store"] == store]
        middle = lambda of: statistics.median(map(of, own))
        spread = lambda of: f"{middle(of):,.0f} ({min(map(of, own)):,.0f}-{max(map(of, own)):,.0f})"
        asked = " / ".join(f"{middle(lambda row: row[kind] / IMAGES):.3g}" for kind in ["gets", "heads", "lists"])
        share = middle(lambda row: row["curl_seconds"] / row["first_seconds"])
        lines.append(f"| {store} | {spread(lambda row: IMAGES / row['curl_seconds'])} | {spread(lambda row: IMAGES / row['first_seconds'])} | {share:.2f} "
                     f"| {middle(lambda row: (row['first_user'] + row['first_kernel']) / IMAGES * 1e6):.0f}, {middle(lambda row: row['first_kernel'] / IMAGES * 1e6):.0f} | {asked} | {spread(lambda row: IMAGES / row['second_seconds'])} "
                     f"| {middle(lambda row: LARGE * LARGE_BYTES / row['large_seconds'] / 1e6):.0f}, {middle(lambda row: row['large_gets']):.0f} |")
    return "\n".join(lines) + "\n"


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stoker-stores-") as scratch, multiprocessing.Pool(PROCESSES) as pool:
        scratch, rows, noise, sums = Path(scratch), [], os.urandom(1 << 20), {}
        data = scratch / "data"
        for number, (name, size) in enumerate([(name, IMAGE) for name in NAMES] + [(name, LARGE_BYTES) for name in BIG]):
            path = data / servers.BUCKET / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((number.to_bytes(8, "little") + noise * (size // len(noise) + 1))[:size])
            sums[name] = checksum(path)
        (scratch / "mnt").mkdir()
        for server in servers.each(STOKER, scratch, data, NAMES + BIG):
            for number in range(ROUNDS):
                rows.append(round_of(server, pool, scratch, sums, number))
                (OUT / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(table(rows))
    sys.exit(1 if any(row["wrong"] or row["second_gets"] for row in rows) else 0)


if __name__ == "__main__":
    main()
