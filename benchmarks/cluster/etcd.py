"""An etcd on a host of its own, which tells of members."""

import base64
import json
import shutil
import subprocess
import sys

from bed import wait_for

PREFIX = "/stoker/train"

# It is asked where it is, whatever its cable does.
ASK = """
import base64, json, sys, urllib.request
key = base64.b64encode(sys.argv[2].encode()).decode()
end = base64.b64encode((sys.argv[2][:-1] + chr(ord(sys.argv[2][-1]) + 1)).encode()).decode()
body = json.dumps({"key": key, "range_end": end, "keys_only": True}).encode()
print(urllib.request.urlopen(sys.argv[1] + "/v3/kv/range", body, timeout=2).read().decode())
"""


class Etcd:
    def __init__(self, net, host, scratch):
        self.net, self.host, self.data, self.process = net, host, scratch / "etcd", None
        self.log = open(scratch / "etcd.log", "wb")
        self.url = f"http://{net.address(host)}:2379"
        self.members = f"etcd://{net.address(host)}:2379{PREFIX}"
        self.start()

    def start(self):
        peers = "http://127.0.0.1:2380"
        words = [*self.net.inside(self.host), "etcd", "--data-dir", self.data, "--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        words += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log)
        wait_for(lambda: self.names() is not None, "etcd answers")

    def names(self):
        """Who has written itself there; None while it doesn't answer."""
        words = [*self.net.inside(self.host), sys.executable, "-c", ASK, self.url, f"{PREFIX}/"]
        said = subprocess.run(words, capture_output=True)
        if said.returncode:
            return None
        keys = [base64.b64decode(pair["key"]).decode() for pair in json.loads(said.stdout).get("kvs", [])]
        return {key.rsplit("/", 1)[1] for key in keys}

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def forget(self):
        shutil.rmtree(self.data)
