"""Hadoop's own name node and data nodes, each in a network namespace of its own. Ends what it started, and nothing else."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

JARS = Path(__file__).parents[2] / "target/tools/hadoop"
OWNER = "owner"


class Cluster:
    """A name node at the switch, and a data node on each of the first hosts of a network. Every block lies on each of them."""

    def __init__(self, net, data_nodes):
        self.net, self.data_nodes, self.children = net, data_nodes, []
        self.scratch = Path(tempfile.mkdtemp(prefix="stoker-hdfs-"))
        self.environment = os.environ | {"HADOOP_USER_NAME": OWNER}
        try:
            self.begin()
        except BaseException:
            self.close()
            raise

    def begin(self):
        self.configure()
        self.run(["org.apache.hadoop.hdfs.server.namenode.NameNode", "-format", "-nonInteractive"])
        self.start("hub", ["org.apache.hadoop.hdfs.server.namenode.NameNode"])
        for host in range(self.data_nodes):
            at = {"dfs.datanode.address": 9866, "dfs.datanode.ipc.address": 9867, "dfs.datanode.http.address": 9864}
            words = [f"-Ddfs.datanode.data.dir=file://{self.scratch}/data{host}"]
            words += [f"-D{name}={self.net.address(host)}:{port}" for name, port in at.items()]
            self.start(host, ["org.apache.hadoop.hdfs.server.datanode.DataNode", *words])
        self.wait()

    def configure(self):
        values = {
            "fs.defaultFS": f"hdfs://{self.net.here}:9000",
            "hadoop.tmp.dir": f"{self.scratch}/tmp",
            "dfs.namenode.name.dir": f"file://{self.scratch}/name",
            "dfs.namenode.http-address": f"{self.net.here}:9870",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.edits.noeditlogchannelflush": "true",
            "dfs.replication": self.data_nodes,
            "dfs.heartbeat.interval": 1,
        }
        properties = "".join(f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in values.items())
        (self.scratch / "conf").mkdir()
        for name in ["core-site.xml", "hdfs-site.xml"]:
            (self.scratch / "conf" / name).write_text(f"<configuration>\n{properties}</configuration>\n")

    def java(self, host, words):
        path = ":".join([str(self.scratch / "conf"), *map(str, sorted(JARS.glob("*.jar")))])
        return [*self.net.inside(host), "java", "-Xmx256m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={self.scratch}", "-cp", path, *words]

    def start(self, host, words):
        with open(self.scratch / f"{host}.log", "wb") as log:
            self.children.append(subprocess.Popen(self.java(host, words), env=self.environment, stdout=log, stderr=log))

    def run(self, words):
        subprocess.run(self.java("hub", words), env=self.environment, check=True, capture_output=True)

    def wait(self):
        """Until all data nodes are there."""
        words = [*self.net.inside("hub"), "python3", "-c", f"import urllib.request as u; print(u.urlopen('http://{self.net.here}:9870/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState').read().decode())"]
        for _ in range(600):
            said = subprocess.run(words, check=False, capture_output=True).stdout
            beans = json.loads(said)["beans"] if said else []
            if beans and beans[0]["NumLiveDataNodes"] == self.data_nodes:
                return
            time.sleep(0.2)
        raise TimeoutError("the data nodes are not there")

    def put(self, folder):
        """Write a folder, by Hadoop's own command."""
        self.run(["org.apache.hadoop.fs.FsShell", "-put", "-t", "4", str(folder), "/set"])

    def url(self):
        return f"hdfs://{self.net.here}:9000/set"

    def sent(self, host):
        """Bytes that left the link of a data node so far."""
        said = subprocess.run(["ip", "-n", self.net.space(host), "-s", "-j", "link", "show", "cable"], check=True, capture_output=True)
        return json.loads(said.stdout)[0]["stats64"]["tx"]["bytes"]

    def close(self):
        for child in self.children:
            child.kill()
            child.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)
