"""How each part was measured, beside its rows: by which program, of which tree, in which words, and how long it took."""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from bed import SEEN, STOKER


def git(*words):
    """What git says of the tree that the program lies in, or else of this one."""
    inside = subprocess.run(["git", "-C", STOKER.parent, "rev-parse"], capture_output=True).returncode == 0
    tree = STOKER.parent if inside else Path(__file__).parent
    said = subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True)
    return said.stdout.strip() if said.returncode == 0 else None


def moment(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def program():
    """A commit that is later than the program was built is not the one that it was built from."""
    # What runs leave is no part of any program.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)runs")
    commit_at = git("log", "-1", "--format=%ct")
    return {
        "commit": git("rev-parse", "HEAD"),
        "commit_at": commit_at and moment(int(commit_at)),
        "dirty": None if changed is None else bool(changed),
        "built_at": moment(STOKER.stat().st_mtime),
        "built_in_this_tree": STOKER.is_relative_to(Path(__file__).resolve().parents[2]),
    }


def write(path, part, built, seconds):
    """`built`: what `program` said when it all began."""
    how = {name: sorted(said) for name, said in SEEN.items()}
    machine = {"cpus": os.cpu_count(), "nice": os.nice(0), "load_average": [round(load, 1) for load in os.getloadavg()], "kernel": platform.release()}
    all_parts = json.loads(path.read_text()) if path.exists() else {}
    all_parts[part] = built | {"ended_at": moment(time.time()), "seconds": round(seconds), "arguments": sys.argv[1:], "TIMES": os.environ.get("TIMES")} | how | machine
    path.write_text(json.dumps(all_parts, indent=1, sort_keys=True) + "\n")
