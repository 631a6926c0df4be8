"""A policy of the store denies one principal all objects: it gets none through any member, however warm the cache of another is."""

import errno
import http.client
import http.server
import os
import re
import threading

from bed import BUCKET, Bed, sum_of, wait_for
from store import read

FILES, BYTES, NODES = 64, 1_500_000, 4
ALLOWED, DENIED = "AKIAALLOWED", "AKIADENIED"

REFUSAL = b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>a policy says so</Message></Error>"


class Policy:
    """In front of a store: those who are denied list its names, and get no object."""

    def __init__(self, bed):
        self.denied, self.refused, self.passed, behind = {DENIED}, 0, 0, bed.store_at
        policy, local = self, threading.local()

        class Request(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                who = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
                who = who and who.group(1)
                # It has a key behind the name of the bucket.
                is_object = self.path.split("?")[0].removeprefix(f"/{BUCKET}").strip("/") != ""
                if is_object and who in policy.denied:
                    policy.refused += 1
                    return self.answer(403, {"Content-Type": "application/xml"}, REFUSAL)
                policy.passed += is_object and who == DENIED
                if not hasattr(local, "store"):
                    local.store = http.client.HTTPConnection(behind)
                local.store.request(self.command, self.path, headers=dict(self.headers))
                answer = local.store.getresponse()
                ours = {"connection", "content-length", "transfer-encoding", "date", "server"}
                headers = {name: value for name, value in answer.getheaders() if name.lower() not in ours}
                self.answer(answer.status, headers, answer.read(), answer.headers.get("Content-Length"))

            do_HEAD = do_GET

            def answer(self, status, headers, body, length=None):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Request)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        bed.store_at = f"127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def outcome(path):
    """What a program gets that reads a file: the name of an error, or bytes."""
    try:
        with open(path, "rb", buffering=0) as file:
            return "bytes" if file.read(1) else "nothing"
    except OSError as error:
        return errno.errorcode[error.errno]


def run(rows):
    with Bed(FILES, BYTES) as bed:
        policy = Policy(bed)
        try:
            judge(rows, bed, policy)
        finally:
            bed.unmount()
            policy.close()


def judge(rows, bed, policy):
    bed.write_hosts(NODES)
    # The last member has a mount of the principal that is denied alone; what the other one owns of it lies there all the same.
    for number in range(NODES - 1):
        bed.mount_one(number, bed.total // 2, who=ALLOWED)
    for number in range(NODES):
        bed.mount_one(number, bed.total // 2, who=DENIED)
    wait_for(lambda: bed.all_answer(NODES), "all members answer")
    warm = [bed.at(number, ALLOWED) for number in range(NODES - 1)]
    for at in warm:
        for number in range(FILES):
            if sum_of(at / f"{number:05}") != bed.sums[number]:
                raise ValueError(f"file {number} is wrong at {at}")
    outcomes = {}
    for node in range(NODES):
        at = bed.at(node, DENIED)
        names = sorted(os.listdir(at))
        if len(names) != FILES:
            raise ValueError(f"{len(names)} names of {FILES} are listed at {at}")
        for name in names:
            got = outcome(at / name)
            outcomes[got] = outcomes.get(got, 0) + 1
    reads, refused = NODES * FILES, outcomes.get("EACCES", 0)
    note = f"{outcomes}; the store refused {policy.refused} requests"
    rows.add(f"reads through {NODES} members by a principal that is denied GET, cache warm for another: EACCES", reads, refused, f"= {reads}", refused == reads, note)
    had = bed.figure("had_bytes")
    wrong = sum(sum_of(at / f"{number:05}") != bed.sums[number] for at in warm for number in range(FILES))
    rows.at_most("reads of the other principal after that which are wrong", 0, wrong, 0, f"{len(warm) * FILES} reads, {bed.figure('had_bytes') - had} bytes of them from members")
    # Else nothing could be read for another reason.
    policy.denied = set()
    for node in range(NODES):
        for number in range(FILES):
            if sum_of(bed.at(node, DENIED) / f"{number:05}") != bed.sums[number]:
                raise ValueError(f"file {number} is wrong at node {node} once it may be read")
    if not policy.passed:
        raise ValueError("objects were read that the store was not asked for")
