"""Servers of each kind of store on this machine, with the same objects in them, for what is measured side by side. None of them is ours but
`stoker emulate`. What is not there is passed over, and said so: `make servers` brings fake-gcs-server and Azurite; versitygw is looked for on the PATH
and in target/tools."""
import http.client, os, shutil, socket, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/tools"
BUCKET, ACCOUNT = "side", "devstoreaccount1"
# The key of Azure's emulator, which is the same everywhere and no secret, as are these.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
S3_KEYS = ("stoker", "stokersecret")
VERSION = {"x-ms-version": "2020-04-08"}


class Server:
    """One that runs: its name, the URL of the bucket with the words and variables that reach it, and how curl(1) asks for a key."""

    def __init__(self, name, process, url, words, variables, path, curl=()):
        self.name, self.process, self.url, self.words, self.variables = name, process, url, words, variables
        self.path, self.curl = path, list(curl)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def free():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


def started(port, *words, **more):
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    for _ in range(1200):
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    sys.exit(f"{words[0]} does not listen")


def asked(address, method, path, body=b"", headers={}):
    line = http.client.HTTPConnection(address, timeout=60)
    line.request(method, path, body, headers)
    answer = line.getresponse()
    answer.read()
    line.close()
    return answer.status


def put(address, method, path, headers, data, keys):
    """Files below a folder as objects, by eight lines at a time."""
    def some(part):
        line = http.client.HTTPConnection(address, timeout=60)
        for key in part:
            line.request(method, path(key), (data / key).read_bytes(), {"content-type": "application/octet-stream", **headers})
            answer = line.getresponse()
            answer.read()
            if answer.status not in (200, 201):
                sys.exit(f"{key}: {answer.status}")
        line.close()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, [keys[n::8] for n in range(8)]))


def signature():
    """A shared access signature of Azure's emulator, from the tests."""
    text = (ROOT / "tests/support/clouds.rs").read_text()
    return text.split("SIGNATURE", 1)[1].split('"', 2)[1]


def emulate(stoker, data, *words):
    """`data` is the folder that has the bucket's."""
    port = free()
    address = f"127.0.0.1:{port}"
    process = started(port, stoker, "emulate", data, "--listen", address, *words)
    reach = ["--endpoint", f"http://{address}", "--anonymous", "--region", "us-east-1"]
    return Server("S3: stoker emulate", process, f"s3://{BUCKET}", reach, {}, lambda key: f"http://{address}/{BUCKET}/{key}")


def versitygw(data):
    program = shutil.which("versitygw") or (TOOLS / "versitygw" if (TOOLS / "versitygw").exists() else None)
    if not program:
        return None
    (access, secret), port = S3_KEYS, free()
    address = f"127.0.0.1:{port}"
    process = started(port, program, "--port", address, "--access", access, "--secret", secret, "--region", "us-east-1", "posix", data)
    variables = {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret}
    curl = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{access}:{secret}", "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
    reach = ["--endpoint", f"http://{address}", "--region", "us-east-1"]
    return Server("S3: versitygw", process, f"s3://{BUCKET}", reach, variables, lambda key: f"http://{address}/{BUCKET}/{key}", curl)


def google(data, keys):
    program = TOOLS / "fake-gcs-server"
    if not program.exists():
        return None
    port = free()
    address = f"127.0.0.1:{port}"
    process = started(port, program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", port, "-public-host", address, "-log-level", "error")
    asked(address, "POST", "/storage/v1/b?project=p", b'{"name": "%s"}' % BUCKET.encode(), {"content-type": "application/json"})
    put(address, "POST", lambda key: f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={key}", {}, data / BUCKET, keys)
    path = lambda key: f"http://{address}/storage/v1/b/{BUCKET}/o/{key.replace('/', '%2F')}?alt=media"
    return Server("Google: fake-gcs-server", process, f"gs://{BUCKET}", ["--endpoint", f"http://{address}", "--anonymous"], {}, path)


def azure(folder, data, keys):
    program = TOOLS / "node_modules/.bin/azurite-blob"
    if not program.exists():
        return None
    port = free()
    address, sas = f"127.0.0.1:{port}", signature()
    words = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", port]
    process = started(port, program, *words, cwd=folder)
    asked(address, "PUT", f"/{ACCOUNT}/{BUCKET}?restype=container&{sas}", b"", VERSION)
    put(address, "PUT", lambda key: f"/{ACCOUNT}/{BUCKET}/{key}?{sas}", {**VERSION, "x-ms-blob-type": "BlockBlob"}, data / BUCKET, keys)
    reach = ["--endpoint", f"http://{address}/{ACCOUNT}"]
    path = lambda key: f"http://{address}/{ACCOUNT}/{BUCKET}/{key}?{sas}"
    return Server("Azure: Azurite", process, f"az://{BUCKET}", reach, {"AZURE_STORAGE_KEY": AZURE_KEY}, path)


def each(stoker, folder, data, keys):
    """All that are here, one after the other. `data` has the bucket as a folder with these files."""
    for start in [lambda: emulate(stoker, data), lambda: versitygw(data), lambda: google(data, keys), lambda: azure(folder, data, keys)]:
        server = start()
        if server is None:
            print("one kind of server is not here: see benchmarks/servers.py", file=sys.stderr)
            continue
        try:
            yield server
        finally:
            server.stop()
