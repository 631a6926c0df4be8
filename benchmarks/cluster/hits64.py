"""Hits of many members: 16 as processes with a mount each, and 64 as `stoker bench simulate` has them.

64 processes on two cores are too slow to answer each other in time, so that readers go to the store. The simulation draws who
reads what and what lies where; it knows nothing of what members say to each other: its rows are arithmetic
of placement, and no member is started for them.
"""

import json
import subprocess

import store
from bed import STOKER, Bed


def run(rows):
    # So many bytes that what 16 memories hold of the rest is little.
    store.hits(rows, 16, 4_800, 393_216)
    for ratio in [0.9, 1.0]:
        simulated(rows, ratio)


def simulated(rows, ratio):
    with Bed(0, 0) as bed:
        words = [STOKER, "bench", "simulate", "--workload", "unet3d", "--accelerator", "v100", "--accelerators", "64", "--node", "1,25Gbit/s"]
        words += ["--store", "300Gbit/s", "--cache-ratio", f"{ratio},policy=never,place=peers", "--epochs", "3x176", "--seed", "1..2"]
        saved = bed.scratch / "simulated.json"
        subprocess.run([*words, "--save", saved], env=bed.environment, check=True, capture_output=True)
        shares = json.loads(saved.read_text())["sections"]["simulation"]["hit_share_by_point_and_epoch"][-1]
        # The first epoch is cold, and not told.
        share = shares[-1]
        note = "arithmetic of placement: no member runs, and nothing is said"
        rows.told(f"hits at r = {ratio}, 64 members, simulated", ratio, share, note)
