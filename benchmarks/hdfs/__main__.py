"""Images a second out of HDFS beside what each data node sends, with one, two and four data nodes that hold every block, on links
of so many bytes a second; one client and three, each with a mount of its own and an empty cache. Root; `make hadoop` and a release
build first. Rows go to OUT."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from bed import NOISE, STOKER, wait_for
from cluster import OWNER, Cluster
from net import Net

# Images as ImageNet has them. A link is a quarter of a gigabit, so that four of them are less than this machine's cores can move.
FILES, BYTES, LINK, WIDE = 1_000, 110_000, 25e6, 1e9
DATA_NODES, CLIENTS, READERS = [1, 2, 4], [1, 3], 32


def content(number):
    return number.to_bytes(8, "little") + NOISE[: BYTES - 8]


def read(at, numbers, wrong):
    while numbers:
        try:
            number = numbers.pop()
        except IndexError:
            return
        try:
            content = (at / f"{number:05}").read_bytes()
        except OSError:
            content = b""
        if zlib.crc32(content) != SUMS[number]:
            wrong.append(number)


SUMS = [zlib.crc32(content(number)) for number in range(FILES)]


def measure(net, cluster, clients, round_of):
    """One epoch of each client, all at once."""
    scratch = Path(tempfile.mkdtemp(prefix="stoker-hdfs-clients-"))
    environment = os.environ | {"STOKER_RUNTIME_DIR": str(scratch / "run"), "HADOOP_USER_NAME": OWNER, "NO_COLOR": "1"}
    places = [scratch / f"m{number}" for number in range(clients)]
    try:
        for number, at in enumerate(places):
            at.mkdir()
            words = [*net.inside(cluster.data_nodes + number), STOKER, "mount", cluster.url(), at, "--detach", "--fill", "off"]
            words += ["--cache", scratch / f"cache{number}", "--cache-size", "1GB"]
            subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
        before, wrong, threads = [cluster.sent(host) for host in range(cluster.data_nodes)], [], []
        began = time.monotonic()
        for number, at in enumerate(places):
            order = list(range(FILES))
            random.Random(100 * round_of + number).shuffle(order)
            threads += [threading.Thread(target=read, args=(at, order, wrong)) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        sent = [cluster.sent(host) - earlier for host, earlier in zip(range(cluster.data_nodes), before)]
        said = subprocess.run([STOKER, "status", "--json"], env=environment, check=True, capture_output=True).stdout
        stores = [json.loads(line)["store"] for line in said.splitlines()]
    finally:
        for at in places:
            subprocess.run([STOKER, "umount", "--lazy", at], env=environment, check=False, stdout=subprocess.DEVNULL)
        wait_for(lambda: not subprocess.run([STOKER, "status", "--json"], env=environment, check=True, capture_output=True).stdout.strip(), "the nodes have ended")
        shutil.rmtree(scratch, ignore_errors=True)
    images = clients * FILES - len(wrong)
    # A link carries headers too: Ethernet, IP and TCP take 66 bytes of 1,514, and HDFS's checksums 4 of each 512.
    bound = cluster.data_nodes * LINK / BYTES * (1448 / 1514) * (512 / 516)
    asked = {kind: sum(store[kind] for store in stores) for kind in ["gets", "heads", "lists", "retries", "errors"]}
    return {
        "data_nodes": cluster.data_nodes, "clients": clients, "round": round_of, "images_per_second": images / seconds, "bound": bound,
        "of_bound": images / seconds / bound, "seconds": seconds, "egress_bytes": sent, "egress_of_images": sum(sent) / (images * BYTES),
        "egress_bytes_per_second": [each / seconds for each in sent], "wrong": len(wrong), "asked": asked,
    }


def main():
    rows, rounds = [], int(os.environ.get("ROUNDS", 3))
    folder = Path(tempfile.mkdtemp(prefix="stoker-hdfs-set-"))
    for number in range(FILES):
        (folder / f"{number:05}").write_bytes(content(number))
    try:
        for data_nodes in DATA_NODES:
            net = Net(data_nodes + max(CLIENTS), WIDE)
            cluster = None
            try:
                cluster = Cluster(net, data_nodes)
                cluster.put(folder)
                for host in range(data_nodes):
                    net.limit(host, LINK)
                for round_of, clients in ((each, some) for each in range(rounds) for some in CLIENTS):
                    row = measure(net, cluster, clients, round_of)
                    rows.append(row)
                    print(f"{data_nodes} data nodes, {clients} clients: {row['images_per_second']:.0f} images/s, {100 * row['of_bound']:.1f} % of the bound", [f"{each / 1e6:.1f}" for each in row["egress_bytes_per_second"]], row["asked"], flush=True)
                    if out := os.environ.get("OUT"):
                        Path(out).mkdir(parents=True, exist_ok=True)
                        (Path(out) / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
            finally:
                if cluster:
                    cluster.close()
                net.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if any(row["wrong"] for row in rows) else 0)


if __name__ == "__main__":
    main()
