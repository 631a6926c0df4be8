"""A full cache on nodes whose links are the bound: each reads what lies with the others through one link."""

import json
import subprocess
from functools import partial

from bed import Bed
from job import Job
from net import Net
from store import settle

# As many files as a node tells one by one. With two nodes a half of what is asked for crosses: more is asked for there.
LINK, DEMAND, FILES, BYTES, EPOCHS = 50e6, {2: 120e6, 1: 80e6, 4: 80e6}, 1_000, 1_000_000, 4


def bare(net):
    """Bytes a second that plain TCP moves over one link, or what it is limited to where nobody can measure that."""
    server = subprocess.Popen([*net.inside(0), "iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE)
    server.stdout.readline()
    words = [*net.inside(1), "iperf3", "-c", net.address(0), "-t", "3", "-O", "1", "--json"]
    done = subprocess.run(words, capture_output=True, check=True)
    server.wait()
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8


def crossing(files, holders, nodes):
    """Bytes that have to go through each link if nodes read these files, one way and the other. `files`: who reads which, of what size;
    `holders`: which of the names lie on the disk of each. Of several who have it, each gives as much; what nobody has comes from the store."""
    into, out = nodes * [0], nodes * [0]
    for node, name, size in files:
        if name in holders[node]:
            continue
        into[node] += size
        givers = [holder for holder in range(nodes) if name in holders[holder]]
        for holder in givers:
            out[holder] += size / len(givers)
    return into, out


def measure(rows, nodes):
    net = Net(nodes, LINK)
    link = bare(net) if nodes > 1 else LINK
    with Bed(FILES, BYTES, net=net) as bed:
        # Little memory, so that what lies elsewhere crosses again in each epoch.
        bed.mount(nodes, int(1.03 * bed.total / nodes), memory="64MiB")
        # In other orders than those of the job.
        settle(bed, list(range(nodes)), 1)
        judge(rows, bed, nodes, DEMAND[nodes], link)


def judge(rows, bed, nodes, demand, link):
    """What crosses is known before anything is read: the orders are, and on whose disk each file lies."""
    holders = [bed.kept(node) for node in range(nodes)]
    job = Job(bed, list(range(nodes)), BYTES / demand, EPOCHS, declared=True)
    files = [(node, f"{number:05}", BYTES) for order in job.orders[1:EPOCHS] for node in range(nodes) for number in order[node::nodes][: job.steps]]
    into, out = crossing(files, holders, nodes)
    # Chance gives some owners more files than others, and some readers more that lie elsewhere: whichever link carries most is the bound
    # of all, since accelerators step together.
    bound = min(1, (EPOCHS - 1) * job.steps * job.step / (max(into + out) / link)) if any(into) else 1
    even = min(1, link / (demand * (1 - 1 / nodes))) if nodes > 1 else 1
    had, sent = [], bed.sent()
    ends = job.run(lambda epoch: had.append(bed.figure("had_bytes")))
    had.append(bed.figure("had_bytes"))
    note = f"{nodes * demand / 1e6:.0f} MB/s of demand, plain TCP over one link {link / 1e6:.1f}, {100 * even:.1f} if all links carried the same"
    note += f", store bytes {(bed.sent() - sent) / bed.total:.3f} of the set"
    measure = f"AU of {nodes} nodes with a full cache on links of 50 MB/s"
    job.judge(rows, measure)
    rows.at_least(measure, 100 * bound, 100 * job.au(ends, 1, EPOCHS - 1), 0.95, note)
    if nodes > 1:
        crossed = (had[-1] - had[1]) / sum(into)
        rows.within(f"bytes that {nodes} nodes had from each other, of what lay elsewhere", 1, crossed, 0.95, 1.01, "less where memory still had it")


PARTS = {str(nodes): partial(measure, nodes=nodes) for nodes in DEMAND}
