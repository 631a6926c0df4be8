"""What a member gives of what it keeps, without encryption: large runs beside plain TCP, and small objects on one core."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

from bed import Bed

ASK = Path(os.environ.get("ASK") or Path(__file__).parents[2] / "target/release/stoker-benchmarks").resolve()
SECONDS = 5


def plain_tcp():
    """Bytes that iperf3 moves in a second of processor time, of both ends."""
    port = "5987"
    server = subprocess.Popen(["iperf3", "-s", "-1", "-p", port, "--forceflush"], stdout=subprocess.PIPE)
    server.stdout.readline()
    done = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", str(SECONDS), "--json"], capture_output=True, check=True)
    server.wait()
    end = json.loads(done.stdout)["end"]
    cpu = end["cpu_utilization_percent"]
    bytes_a_second = end["sum_received"]["bits_per_second"] / 8
    return bytes_a_second / ((cpu["host_total"] + cpu["remote_total"]) / 100)


@contextlib.contextmanager
def on_core(core):
    """Whoever is started meanwhile stays on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Member:
    """A node without a mount that keeps all of a set, and is asked for it."""

    def __init__(self, bed, core=None):
        self.bed = bed
        bed.write_hosts(1)
        with on_core(core) if core is not None else contextlib.nullcontext():
            self.node = bed.serve_one(0, int(1.2 * bed.total))
        self.at = bed.hosts_of(0).read_text().split()[0]
        # Until it keeps all of it, and has opened what it keeps.
        sent = -1
        while sent != bed.sent():
            sent = bed.sent()
            self.ask(depth=16, seconds=3)

    def ask(self, core=None, **how):
        (snapshot,) = (self.bed.scratch / "cache0" / "manifests").iterdir()
        words = [ASK, "ask", "--member", self.at, "--name", "n0", "--snapshot", snapshot]
        for name, value in how.items():
            flag = "--" + name.replace("_", "-")
            words += [flag] if value is True else [flag, str(value)]
        before = self.bed.cpu_seconds(0)
        with on_core(core) if core is not None else contextlib.nullcontext():
            said = subprocess.run(words, check=True, capture_output=True, env=self.bed.environment).stdout
        return json.loads(said) | {"server_cpu_seconds": self.bed.cpu_seconds(0) - before}


def per_cpu_second(came):
    return came["bytes"] / (came["cpu_seconds"] + came["server_cpu_seconds"])


def run(rows):
    tcp = plain_tcp()
    with Bed(64, 16 << 20) as bed:
        member = Member(bed)
        came = member.ask(depth=4, connections=2, blocks=16, seconds=SECONDS, as_member=True)
        share = per_cpu_second(came) / tcp
        note = f"{per_cpu_second(came) / 1e9:.2f} GB of {tcp / 1e9:.2f}; {came['bytes_per_second'] / 1e9:.2f} GB/s"
        rows.add("4 MiB runs from member to member, bytes a CPU second beside iperf3", 1, share, ">= 0.8", share >= 0.8, note)
    with Bed(1_000, 64 << 10) as bed:
        member = Member(bed, core=0)
        for depth, goal in [(64, 110_000), (1, 40_000)]:
            how = "pipelined" if depth > 1 else "not pipelined"
            for mode in ["discard", "verify"]:
                came = member.ask(core=1, depth=depth, seconds=SECONDS, **{mode: True})
                reads = came["requests_per_second"]
                cpu = f"server {came['server_cpu_seconds'] / came['seconds']:.2f}, asker {came['cpu_seconds'] / came['seconds']:.2f} of a core"
                if mode == "discard":
                    rows.add(f"reads/s of cached 64 KiB, server on one core, {how}", goal, reads, f">= {goal}", reads >= goal, cpu)
                else:
                    print(f"       the same verified: {reads:.0f} reads/s; {cpu}", flush=True)
