"""What background fill costs a reader: `python3 measure.py STOKER OUT.json`, with 0.4 GB free in /dev/shm."""

import json, os, random, shutil, subprocess, sys, tempfile, time

FILES, SIZE, READ, ROUNDS = 4000, 100_000, 200, 3
STOKER, OUT = os.path.abspath(sys.argv[1]), sys.argv[2]
DATA, WORK = tempfile.mkdtemp(dir="/dev/shm"), tempfile.mkdtemp()
MOUNT, CACHE = f"{WORK}/mnt", f"{WORK}/cache"
ENV = dict(os.environ, STOKER_RUNTIME_DIR=f"{WORK}/run", HOME=WORK)


def read(path):
    began = time.perf_counter()
    file, left = os.open(path, os.O_RDONLY), SIZE
    while left and (got := os.read(file, 1 << 20)):
        left -= len(got)
    os.close(file)
    assert left == 0
    return round((time.perf_counter() - began) * 1e3, 3)


def measure(endpoint, fill, turn):
    shutil.rmtree(CACHE, ignore_errors=True)
    command = [STOKER, "mount", "s3://b", MOUNT, "--endpoint", endpoint, "--region", "us-east-1", "--anonymous"]
    node = subprocess.Popen(command + ["--cache", CACHE, "--fill", fill], env=ENV, stdout=subprocess.PIPE, text=True)
    assert node.stdout.readline().startswith("mounted")
    names = [f"{number:05d}" for number in range(FILES)]
    random.Random(turn).shuffle(names)
    latencies = [read(f"{MOUNT}/d/{name}") for name in names[:READ]]
    status = subprocess.run([STOKER, "status", MOUNT, "--json"], env=ENV, capture_output=True, text=True).stdout
    status = json.loads(status)
    node.terminate()
    node.wait()
    store, filled = status["store"], status["mounts"][0]["filled_files"]
    return dict(fill=fill, seed=turn, latencies_ms=latencies, filled_files=filled, waits=status["waits"],
                requests_limit=store["requests_limit"], hedged=store["hedged"], round=turn)


for folder in [f"{DATA}/d", MOUNT, f"{WORK}/run"]:
    os.makedirs(folder)
for number in range(FILES):
    with open(f"{DATA}/d/{number:05d}", "wb") as file:
        file.write(random.Random(number).randbytes(SIZE))
limits = ["--latency", "20ms", "--bandwidth", "100MB/s"]
server = subprocess.Popen([STOKER, "emulate", DATA, "--bucket", "b", *limits], stdout=subprocess.PIPE, text=True)
endpoint, modes, samples = server.stdout.readline().strip(), ["off", "auto", "all"], []
for turn in range(ROUNDS):
    for fill in modes[turn:] + modes[:turn]:
        samples.append(measure(endpoint, fill, turn))
        with open(OUT, "w") as file:
            json.dump(samples, file, indent=0)
server.terminate()
shutil.rmtree(DATA)
shutil.rmtree(WORK)
