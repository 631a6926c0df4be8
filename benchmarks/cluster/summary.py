"""The table of a folder of runs, as a page shows it: `python3 benchmarks/cluster/summary.py runs/FOLDER` writes it anew between the
words of its summary.md, which stay."""

import json
import sys
from pathlib import Path

BEGIN, END = "| what | bound | goal | figure | |", "## Why short"


def line(row):
    met = "told" if row["goal"].startswith("none") else "met" if row["holds"] else "**short**"
    number = lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)
    value = number(row["value"]) if abs(row["value"]) < 10_000 else f"{row['value']:.0f}"
    return f"| {row['measure']} | {number(row['bound'])} | {row['goal']} | {value} | {met} |"


def table(rows):
    """Rows that count errors are many, and one line where there are none."""
    counts = [row for row in rows if row["measure"].startswith("errors and wrong bytes")]
    clean = sum(row["value"] == 0 for row in counts)
    shown = [line(row) for row in rows if row not in counts or row["value"] != 0]
    told = f"Errors and wrong bytes: none in {clean} of the {len(counts)} rows that count them."
    return "\n".join([BEGIN, "| --- | --- | --- | --- | --- |", *shown, "", told, "", ""])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    page = folder / "summary.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + table(json.loads((folder / "rows.json").read_text())) + END + rest.split(END, 1)[1])
