"""A network of its own: a switch with a rate-limited link to each host, in network namespaces. Its namespaces end with it."""

import itertools
import os
import subprocess

# Of the block for documentation, which is nobody's.
HERE = "192.0.2.1"

COUNT = itertools.count()


def ip(words):
    subprocess.run(["ip", *words.split()], check=True)


class Net:
    """Hosts n0, n1, ... each on a link of so many bytes a second each way; the store sits at the switch."""

    def __init__(self, hosts, rate):
        self.name, self.rate, self.hosts, self.here = f"stoker{os.getpid()}n{next(COUNT)}", rate, hosts, HERE
        hub = self.space("hub")
        ip(f"netns add {hub}")
        ip(f"-n {hub} link set lo up")
        ip(f"-n {hub} link add switch type bridge")
        ip(f"-n {hub} addr add {HERE}/24 dev switch")
        ip(f"-n {hub} link set switch up")
        for host in range(hosts):
            own = self.space(host)
            ip(f"netns add {own}")
            ip(f"-n {own} link set lo up")
            ip(f"-n {hub} link add port{host} type veth peer name cable netns {own}")
            ip(f"-n {hub} link set port{host} master switch up")
            ip(f"-n {own} addr add {self.address(host)}/24 dev cable")
            ip(f"-n {own} link set cable up")
            self.shape(host)

    def shape(self, host):
        bits = int(8 * self.rate)
        for space, device in [("hub", f"port{host}"), (host, "cable")]:
            words = f"qdisc add dev {device} root tbf rate {bits} burst 256k latency 50ms"
            self.tc(space, words)

    def space(self, host):
        return f"{self.name}-{host}"

    def address(self, host):
        return f"192.0.2.{host + 10}"

    def inside(self, host):
        """What a command line begins with that is to run there. Its mounts are everybody's."""
        return ["nsenter", f"--net=/run/netns/{self.space(host)}"]

    def cable(self, host, state):
        ip(f"-n {self.space('hub')} link set port{host} {state}")

    def limit(self, host, rate):
        """Another rate for the link of a host."""
        for space, device in [("hub", f"port{host}"), (host, "cable")]:
            words = f"qdisc change dev {device} root tbf rate {int(8 * rate)} burst 256k latency 50ms"
            self.tc(space, words)

    def part(self, some, others):
        """From now on what some of the hosts send to the others, or those to them, goes to an address that nobody has; nobody is told."""
        for here, there in [(some, others), (others, some)]:
            for host in here:
                for other in there:
                    ip(f"-n {self.space(host)} neigh replace {self.address(other)} lladdr 02:00:00:00:00:01 nud permanent dev cable")

    def heal(self):
        for host in range(self.hosts):
            ip(f"-n {self.space(host)} neigh flush dev cable nud permanent")

    def tc(self, host, words):
        subprocess.run(["tc", "-n", self.space(host), *words.split()], check=True)

    def close(self):
        for host in ["hub", *range(self.hosts)]:
            subprocess.run(["ip", "netns", "del", self.space(host)], check=False)
