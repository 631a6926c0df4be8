"""Rows of the table: what was measured, what bounds it, what it has to reach, and whether it does."""

import json
import time


class Rows:
    def __init__(self):
        self.all = []

    def add(self, measure, bound, value, goal, holds, note=""):
        row = {"measure": measure, "bound": bound, "value": round(value, 4), "goal": goal, "holds": bool(holds)}
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

    def write(self, path):
        path.write_text(json.dumps(self.all, indent=1) + "\n")


class Timer:
    def __enter__(self):
        self.began = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.began
