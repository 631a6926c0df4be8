"""Rows of the table: what was measured, what bounds it, what it has to reach, and whether it does."""

import json
import time


class Rows:
    """Of all parts. `part`: the one that adds them."""

    def __init__(self):
        self.all, self.part = [], ""

    def add(self, measure, bound, value, goal, holds, note=""):
        row = {"measure": measure, "bound": bound, "value": round(value, 4), "goal": goal, "holds": bool(holds), "part": self.part}
        if note:
            row["note"] = note
        self.all.append(row)
        print(f"{'holds' if holds else 'SHORT'}  {measure}: {row['value']} (bound {bound}, goal {goal}) {note}", flush=True)

    def at_least(self, measure, bound, value, share, note=""):
        """A value that may not fall below a share of its bound, nor rise above it by more than measuring explains."""
        holds = share * bound <= value <= 1.02 * bound
        self.add(measure, round(bound, 4), value, f">= {share} of the bound, <= 1.02 of it", holds, note)

    def at_most(self, measure, bound, value, goal, note=""):
        self.add(measure, bound, value, f"<= {goal}", value <= goal, note)

    def within(self, measure, bound, value, low, high, note=""):
        """For what would be too good to be true below a limit, too: memory paid, or something was not asked for."""
        low, high = round(low, 4), round(high, 4)
        self.add(measure, round(bound, 4), value, f">= {low}, <= {high}", low <= round(value, 4) <= high, note)

    def told(self, measure, bound, value, note=""):
        """A figure without a goal."""
        self.add(measure, bound, value, "none, it is told", True, note)

    def write(self, path):
        """The rows of this run, and of parts that did not run now those of the last time."""
        ran, measures = {row["part"] for row in self.all}, {row["measure"] for row in self.all}
        before = json.loads(path.read_text()) if path.exists() else []
        kept = [row for row in before if row.get("part") not in ran and row["measure"] not in measures]
        path.write_text(json.dumps(kept + self.all, indent=1) + "\n")


class Timer:
    def __enter__(self):
        self.began = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.began
