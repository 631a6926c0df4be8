#!/usr/bin/env python3
"""`find` and `ls -lR` over many names: natively and through Stoker, in turns.

    python3 benchmarks/names.py STOKER FOLDER [FOLDERS] [NAMES-A-FOLDER] [ROUNDS]

As root. Empty files in FOLDER, 1,000 folders of 1,000 unless said otherwise. Each walk of Stoker's is by a new node over its listing;
before each walk the kernel forgets names and inodes. Seconds by the clock; processor seconds of the command and of the node. What is
printed stays in memory, and the names in it are counted afterwards.
"""
import json, os, resource, statistics, subprocess, sys, tempfile, time

STOKER, FOLDER = sys.argv[1:3]
FOLDERS, EACH, ROUNDS = [int(word) for word in sys.argv[3:6]] + [1000, 1000, 3][len(sys.argv) - 3:]
DATA, MOUNT, CACHE = (os.path.join(FOLDER, name) for name in ("data", "mount", "cache"))
NAMES = FOLDERS * (EACH + 1) + 1
TICK = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def forget():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("2")


def names(command, printed):
    printed.seek(0)
    if command == "find":
        return sum(1 for _ in printed) - 1  # Not where it began.
    return sum(line[:1] in (b"-", b"d") and not line.endswith(b":\n") for line in printed)


def walk(command, at, node=None):
    with tempfile.TemporaryFile(dir="/dev/shm") as printed:
        own, began, before = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), cpu(node) if node else 0
        subprocess.run([*command, at], check=True, stdout=printed)
        seconds, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        return {"seconds": seconds, "own": now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime,
                "node": cpu(node) - before if node else 0, "names": names(command[0], printed)}


for folder in range(FOLDERS):
    at = f"{DATA}/names/train/{folder:05d}"
    os.makedirs(at)
    for n in range(EACH):
        os.close(os.open(f"{at}/{folder:05d}_{n:06d}.jpg", os.O_CREAT | os.O_WRONLY))
os.makedirs(MOUNT)
server = subprocess.Popen([STOKER, "emulate", DATA], stdout=subprocess.PIPE, text=True)
raw = []
try:
    endpoint = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
    mount = [STOKER, "mount", "-d", "s3://names", MOUNT, "--endpoint", endpoint, "--anonymous", "--cache", CACHE, "--fill", "off"]
    for _ in range(ROUNDS):
        for command in (["find"], ["ls", "-lR"]):
            forget()
            raw.append({"target": "native", "command": command[0], **walk(command, f"{DATA}/names")})
            forget()
            began = time.monotonic()
            subprocess.run(mount, check=True, stdout=subprocess.DEVNULL)
            mounted = time.monotonic() - began
            status = json.loads(subprocess.run([STOKER, "status", MOUNT, "--json"], check=True, capture_output=True).stdout)
            raw.append({"target": "stoker", "command": command[0], "mounted": mounted, **walk(command, MOUNT, status["pid"])})
            again = walk(command, MOUNT, status["pid"])
            raw.append({"target": "stoker again", "command": command[0], **again})
            subprocess.run([STOKER, "umount", MOUNT], check=True, stdout=subprocess.DEVNULL)
            for row in raw[-3:]:
                print(json.dumps(row), flush=True)
finally:
    server.terminate(), server.wait()
    subprocess.run(["rm", "-rf", DATA, CACHE])

print(f"\n| {FOLDERS * EACH:,} names | clock, s | of native | processor, command + node, s | of native |\n| --- | --- | --- | --- | --- |")
for command in ("find", "ls"):
    of = lambda target, key: statistics.median(key(row) for row in raw if row["target"] == target and row["command"] == command)
    clock, spent = (lambda row: row["seconds"]), (lambda row: row["own"] + row["node"])
    for target in ("native", "stoker", "stoker again"):
        print(f"| {command}, {target} | {of(target, clock):.2f} | {of(target, clock) / of('native', clock):.2f} "
              f"| {of(target, spent):.2f} | {of(target, spent) / of('native', spent):.2f} |")

wrong = [row for row in raw if row["names"] != NAMES]
sys.exit(f"{len(wrong)} of {len(raw)} walks did not print {NAMES:,} names: {wrong}" if wrong else 0)
