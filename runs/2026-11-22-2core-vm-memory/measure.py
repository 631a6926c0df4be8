#!/usr/bin/env python3
"""measure.py BINARY MEMORY FILL LOAD...: the peak of anonymous memory of the daemon under each load, on a node of its own.

EMULATED is the binary that serves the data, WORK a scratch folder; see setup.md."""
import json, os, random, subprocess, sys, tempfile, threading, time, shutil
binary, memory, fill, loads = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
WORK = os.environ["WORK"]
DATA = WORK + "/data"
MB = 1 << 20
def make():
    if os.path.exists(DATA + "/done"): return
    for n in range(64):
        os.makedirs(f"{DATA}/set/large", exist_ok=True)
        with open(f"{DATA}/set/large/{n}", "wb") as f: f.truncate(100_000_000)
    for n in range(800):
        os.makedirs(f"{DATA}/set/mib", exist_ok=True)
        with open(f"{DATA}/set/mib/{n}", "wb") as f: f.truncate(MB)
    for n in range(4000):
        os.makedirs(f"{DATA}/set/small/{n//500}", exist_ok=True)
        with open(f"{DATA}/set/small/{n//500}/{n}", "wb") as f: f.truncate(100_000)
    open(DATA + "/done", "w").close()
make()
def threads(count, work):
    all_ = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    [t.start() for t in all_]; [t.join() for t in all_]
def whole(path, most=10**12, part=256 << 10):
    got = 0; buf = bytearray(part)
    fd = os.open(path, os.O_RDONLY)
    try:
        while got < most:
            n = os.readv(fd, [buf])
            if n == 0: break
            got += n
    finally: os.close(fd)
    return got
def run(load, root):
    total = [0]; lock = threading.Lock()
    def add(n):
        with lock: total[0] += n
    if load == "streams64":
        threads(64, lambda n: add(whole(f"{root}/large/{n}", 20 * MB)))
    elif load == "readers4":
        threads(4, lambda n: [add(whole(f"{root}/large/{n * 3 + k}")) for k in range(3)])
    elif load == "mib400":
        threads(400, lambda n: [add(whole(f"{root}/mib/{n + 400 * k}")) for k in range(2)])
    elif load == "random16":
        def work(n):
            chance = random.Random(n); buf = bytearray(128 << 10)
            fds = [os.open(f"{root}/large/{k}", os.O_RDONLY) for k in range(64)]
            for _ in range(150):
                add(os.preadv(chance.choice(fds), [buf], chance.randrange(0, 760) * (128 << 10)))
            [os.close(fd) for fd in fds]
        threads(16, work)
    elif load == "small16":
        threads(16, lambda n: [add(whole(f"{root}/small/{k//500}/{k}")) for k in range(n, 4000, 16)])
    return total[0]
def anon(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("RssAnon:"): return int(line.split()[1]) << 10
def cpu(pid):
    parts = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
for load in loads:
    work = tempfile.mkdtemp(dir=WORK); mnt = work + "/mnt"; os.makedirs(mnt)
    env = dict(os.environ, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1", STOKER_RUNTIME_DIR=work + "/run")
    em = subprocess.Popen([os.environ["EMULATED"], "emulate", DATA, *os.environ.get("X_EMULATE", "").split()], stdout=subprocess.PIPE, env=env, text=True)
    line = em.stdout.readline(); url = [w for w in line.split() if w.startswith("http")][0].rstrip(".,")
    mount = subprocess.Popen([binary, "mount", "s3://set", mnt, "--endpoint", url, "--memory", memory, "--fill", fill,
        "--cache", work + "/cache", "--cache-size", os.environ.get("CACHE", "3GB")], stdout=subprocess.PIPE, env=env, text=True)
    ready = mount.stdout.readline(); assert "mounted" in ready, ready
    status = lambda: json.loads(subprocess.run([binary, "status", "--json"], env=env, capture_output=True, text=True).stdout)
    s = status(); s = s[0] if isinstance(s, list) else (s.get("nodes", [s])[0])
    pid = s["pid"]
    over = threading.Event(); seen = []
    sampler = subprocess.Popen(["python3", "-c", f"""
import time,sys
while True:
    try:
        for line in open('/proc/{pid}/status'):
            if line.startswith('RssAnon:'): print(int(line.split()[1])<<10, flush=True)
    except Exception: break
    time.sleep(0.05)"""], stdout=open(work + "/samples", "w"))
    perf = subprocess.Popen(['perf','record','-o',WORK + '/perf.data','-e','cpu-clock','-F','499','-p',str(pid)],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL) if os.environ.get('PERF') else None
    start = anon(pid); c0 = cpu(pid); t0 = time.monotonic(); got = run(load, mnt); took = time.monotonic() - t0; c1 = cpu(pid)
    if perf: perf.send_signal(2); perf.wait()
    time.sleep(float(os.environ.get("REST", 5)))
    kept = anon(pid); sampler.terminate(); sampler.wait()
    peak = max(map(int, open(work + "/samples").read().split()))
    s = status(); s = s[0] if isinstance(s, list) else (s.get("nodes", [s])[0])
    lim = s["limits"]
    print(json.dumps({"binary": os.path.basename(binary), "env": {k: v for k, v in os.environ.items() if k.startswith("X_")}, "memory": memory, "fill": fill, "load": load,
        "start": round(start / MB, 1), "peak_mib": round(peak / MB, 1), "kept_mib": round(kept / MB, 1), "seconds": round(took, 2), "mb_s": round(got / took / 1e6, 1), "mb": round(got / 1e6),
        "cpu_s_gb": round((c1 - c0) / got * 1e9, 3), "store_bytes": s["store"]["bytes"], "gets": s["store"]["gets"], "requests_limit": s["store"]["requests_limit"],
        "blocks_used": round(lim["blocks_used"] / MB, 1), "blocks": round(lim["blocks_bytes"] / MB, 1), "threads": len(os.listdir(f"/proc/{pid}/task"))}), flush=True)
    mount.terminate(); mount.wait(); em.terminate(); em.wait()
    shutil.rmtree(work, ignore_errors=True)
