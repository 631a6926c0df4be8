#!/usr/bin/env python3
"""The first offers of a plan, run as `stoker plan try` writes them: same order, and how far utilisation is off.

    python3 benchmarks/plan-trial.py STOKER FOLDER OUT.json WORDS OF THE PLAN...        (the first line of what is tried says how much FOLDER takes)

Of offers that differ in price alone, one is run: the first three that differ in how the job is fed. Each command is one that
`stoker plan try` printed; only its folders are filled in. Steps of the first epoch and of later ones are held against what
the plan says of each.
"""
import json, os, shlex, subprocess, sys, time

STOKER, FOLDER, OUT, WORDS = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3], sys.argv[4:]
OFFERS = 3
STOKER = os.path.abspath(STOKER)
ENV = os.environ | {"XDG_RUNTIME_DIR": f"{FOLDER}/run", "PATH": f"{os.path.dirname(STOKER)}:{os.environ['PATH']}"}
#        of an offer, how the job is fed
KIND = ("method", "au_cold_percent", "au_warm_percent")


def stoker(*words):
    return subprocess.run([STOKER, *words], check=True, capture_output=True, text=True, env=ENV).stdout


def distinct(offers):
    """The first of each way to feed the job, in the order of the plan."""
    found = {}
    for offer in offers:
        if offer["ranked"]:
            found.setdefault(tuple(str(offer[name])[:5] for name in KIND), offer)
    return list(found.values())[:OFFERS]


def words_of(line):
    text = line.split("   #")[0].replace("FOLDER", FOLDER).replace("TRIAL", f"{FOLDER}/trial")
    return shlex.split(text)[1:]


def play(offer, index):
    """All commands of one offer; what a run of them reached."""
    lines = [line for line in stoker("plan", "try", *WORDS, "--offer", offer["id"]).splitlines() if line]
    lines = [line for line in lines if line.startswith(("stoker bench data", "stoker bench train", "stoker emulate", "stoker mount s3://data"))]
    server, report, mounted = None, f"{FOLDER}/run-{index}.json", False
    subprocess.run(["rm", "-rf", f"{FOLDER}/cache", report], check=True)
    try:
        for line in lines:
            words = words_of(line)
            if words[:2] == ["bench", "data"] and os.path.exists(f"{FOLDER}/data"):
                continue
            if words[0] == "emulate":
                server = subprocess.Popen([STOKER, *words], stdout=subprocess.DEVNULL, env=ENV)
                time.sleep(1)
            elif words[:2] == ["bench", "train"]:
                subprocess.run([STOKER, *words, "--save", report], env=ENV, stdout=subprocess.DEVNULL)
            else:
                stoker(*words)
                mounted |= words[0] == "mount"
    finally:
        if mounted:
            stoker("umount", f"{FOLDER}/trial")
        if server:
            server.terminate()
            server.wait()
    with open(report) as file:
        return lines, json.load(file)


def run_of(offer, first, later):
    """Utilisation of the first epoch, of later ones and of all, and the hours of the run, with the copy that the plan has."""
    epochs, ideal = PLAN["demand"]["epochs"], PLAN["ideal_hours"]
    over = epochs / (1 / first + (epochs - 1) / later)
    return {"first": first, "later": later, "all": over, "hours": offer["staging_hours"] + ideal * 100 / over}


def row(offer, lines, report):
    cold = [epoch["au_percent"] for epoch in report["epochs"] if epoch["epoch"] == 1]
    # Where every epoch is like the first, one was run.
    later = [epoch["au_percent"] for epoch in report["epochs"] if epoch["epoch"] > 1] or cold
    return {"offer": offer["id"], "rank": offer["rank"], "method": offer["method"], "commands": lines,
            "plan": run_of(offer, offer["au_cold_percent"], offer["au_warm_percent"]),
            "run": run_of(offer, sum(cold) / len(cold), sum(later) / len(later)), "report": report}


os.makedirs(f"{FOLDER}/trial", exist_ok=True)
os.makedirs(f"{FOLDER}/run", exist_ok=True)
stoker("plan", *WORDS, "--json", f"{FOLDER}/plan.json")
with open(f"{FOLDER}/plan.json") as file:
    PLAN = json.load(file)
rows = []
print("| offer | rank | first, plan | first, run | later, plan | later, run | all, plan | all, computed from the run | hours, plan | hours, computed from the run |")
print("|" + " --- |" * 10)
for index, offer in enumerate(distinct(PLAN["offers"])):
    rows.append(row(offer, *play(offer, index)))
    with open(OUT, "w") as file:
        json.dump({"words": WORDS, "rows": rows}, file, indent=1)
    plan, run = rows[-1]["plan"], rows[-1]["run"]
    cells = [f"{plan[name]:.1f} | {run[name]:.1f}" for name in plan]
    print(f"| `{offer['id']}` | {offer['rank']} |", " | ".join(cells), "|", flush=True)
planned, ran = ([row["offer"] for row in sorted(rows, key=lambda row: row[what]["hours"])] for what in ("plan", "run"))
most = max(abs(row["plan"][name] - row["run"][name]) for row in rows for name in ("first", "later", "all"))
print("same order" if planned == ran else f"another order: {ran}", f"and at most {most:.1f} points apart")
