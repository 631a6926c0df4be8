"""A full cache on nodes whose links are the bound: each reads what lies with the others through one link."""

import json
import subprocess

from bed import Bed
from job import Job
from net import Net

LINK, DEMAND, FILES, BYTES, EPOCHS = 50e6, 80e6, 1_200, 500_000, 4


def bare(net):
    """Bytes a second that plain TCP moves over one link, or what it is limited to where nobody can measure that."""
    server = subprocess.Popen([*net.inside(0), "iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE)
    server.stdout.readline()
    words = [*net.inside(1), "iperf3", "-c", net.address(0), "-t", "3", "-O", "1", "--json"]
    done = subprocess.run(words, capture_output=True, check=True)
    server.wait()
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8


def links(bed):
    """Bytes that each link has carried so far, one way and the other."""
    said = sorted((node["cache"], node["cluster"]) for node in bed.status())
    return [cluster[way] for _, cluster in said for way in ("had_bytes", "served_bytes")]


def run(rows):
    link = LINK
    for nodes in [2, 1, 4]:
        net = Net(nodes, LINK)
        if nodes == 2:
            link = bare(net)
            print(f"       plain TCP over one link: {link / 1e6:.1f} MB/s of {LINK / 1e6:.0f}", flush=True)
        with Bed(FILES, BYTES, net=net) as bed:
            bed.mount(nodes, int(1.01 * bed.total / nodes), memory="256MiB")
            bed.load(0)
            sent = bed.sent()
            job = Job(bed, list(range(nodes)), BYTES / DEMAND, EPOCHS, declared=True)
            carried = []
            ends = job.run(lambda epoch: carried.append(links(bed)))
            carried.append(links(bed))
            # Chance gives some owners more files than others, and some readers more that lie elsewhere: whichever link carries most
            # is the bound of all, since accelerators step together.
            busiest = max(after - before for before, after in zip(carried[1], carried[-1])) / (EPOCHS - 1)
            bound = min(1, (bed.total / nodes / DEMAND) / (busiest / link)) if busiest else 1
            even = min(1, link / (DEMAND * (1 - 1 / nodes))) if nodes > 1 else 1
            note = f"{nodes * DEMAND / 1e6:.0f} MB/s of demand, {100 * even:.1f} if all links carried the same, store bytes {(bed.sent() - sent) / bed.total:.3f} of the set"
            measure = f"AU of {nodes} nodes with a full cache on links of 50 MB/s"
            job.judge(rows, measure)
            rows.at_least(measure, 100 * bound, 100 * job.au(ends, 1, EPOCHS - 1), 0.95, note)
