"""Where the node of this user listens, how one is started, and what it needs to know to reach a store.

Says the same as the command does (crates/stoker/src/place.rs).
"""

import errno
import os
import pwd
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from typing import Dict, List, Optional

from ._wire import Unreachable

#: A node that found another on its cache folder ends with this.
_TAKEN = 75

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_GOOGLE = ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GCE_METADATA_HOST", "HOME")
_AZURE = ("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "HOME", "PATH")
_AWS = ("HOME", "PATH")
_TRUST = ("AWS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")
_OF_AZURE = ("az", "azure", "abfs", "abfss", "wasb", "wasbs")
_HDFS = (
    "HADOOP_CONF_DIR",
    "HADOOP_HOME",
    "HADOOP_PROXY_USER",
    "HADOOP_TOKEN_FILE_LOCATION",
    "HADOOP_USER_NAME",
    "KRB5CCNAME",
    "KRB5_CLIENT_KTNAME",
)
_PATHS = (
    "AWS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_LOGIN_CACHE_DIRECTORY",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
    "AZURE_CONFIG_DIR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "HADOOP_CONF_DIR",
    "HADOOP_HOME",
    "KRB5CCNAME",
    "KRB5_CLIENT_KTNAME",
)


_started: List["subprocess.Popen[bytes]"] = []


def find_bin() -> str:
    """The program, as this package was installed with it, or as the PATH has it."""
    beside = os.path.join(sysconfig.get_path("scripts"), "stoker")
    named = os.environ.get("STOKER_BIN")
    found = shutil.which(named) if named else None
    if named and not found:
        raise FileNotFoundError(errno.ENOENT, "there is no program where STOKER_BIN says (try: the path of `stoker`, or unset it)", named)
    for path in (found, beside, shutil.which("stoker")):
        if path and os.access(path, os.X_OK):
            # It is started in another folder.
            return os.path.abspath(path)
    raise FileNotFoundError(errno.ENOENT, "there is no program `stoker` on the PATH", "stoker")


def socket_named() -> Optional[str]:
    """The socket that the environment names: the data socket, or the control socket beside it."""
    named = os.environ.get("STOKER_SOCKET")
    return data_socket(named) if named else None


def data_socket(path: str) -> str:
    return path[: -len(".sock")] + ".data" if path.endswith(".sock") else path


def control_socket(path: str) -> str:
    return path[: -len(".data")] + ".sock" if path.endswith(".data") else path


def cache(asked: Optional[str]) -> str:
    """The cache folder, made if it is not there."""
    folder = asked or os.environ.get("STOKER_CACHE")
    if not folder:
        if os.geteuid() == 0:
            folder = "/var/cache/stoker"
        elif os.environ.get("XDG_CACHE_HOME"):
            folder = os.path.join(os.environ["XDG_CACHE_HOME"], "stoker")
        else:
            folder = os.path.expanduser("~/.cache/stoker")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.realpath(folder)


def runtime() -> str:
    """The folder of control sockets, open to this user alone."""
    user = os.geteuid()
    names = ["STOKER_RUNTIME_DIR"] + ([] if user == 0 else ["XDG_RUNTIME_DIR"])
    named = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if named:
        folder = os.path.join(named, "stoker")
    else:
        folder = "/run/stoker" if user == 0 else os.path.join(tempfile.gettempdir(), "stoker-%d" % user)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise PermissionError(errno.EACCES, "the folder of control sockets is not this user's alone", folder)
    return folder


def of_cache(folder: str) -> str:
    """The data socket of the node of a cache folder, by the FNV-1a hash of its path."""
    hashed = 0xCBF29CE484222325
    for byte in os.fsencode(folder):
        hashed = (hashed ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return os.path.join(runtime(), "%016x.data" % hashed)


class Starts:
    """Starting a node on a cache folder as often as it takes, unless what is started is none."""

    def __init__(self, folder: str) -> None:
        self.folder, self.ended = folder, 0
        self.node: Optional["subprocess.Popen[bytes]"] = None

    def start(self) -> None:
        """Return once it can be asked, or another that has the folder."""
        code = self.node.poll() if self.node else None
        # One may be ended by somebody as it begins.
        self.ended = self.ended + 1 if code not in (None, _TAKEN) else 0
        if self.ended == 3:
            what = "what is started as a node ends with status %s and says nothing (is it `stoker`?)" % code
            raise Unreachable(errno.ECONNREFUSED, what, find_bin())
        self.node = start(self.folder)


def start(folder: str) -> "subprocess.Popen[bytes]":
    """Start a node on a cache folder, and return once it can be asked, or another that has the folder."""
    program = find_bin()
    without = ("HADOOP_PROXY_USER", "HADOOP_TOKEN_FILE_LOCATION", "NOTIFY_SOCKET")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    _started[:] = [node for node in _started if node.poll() is None]
    node = subprocess.Popen(
        [program, "node", "--for-mounts", "--cache", folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env=environment,
        start_new_session=True,
    )
    assert node.stderr is not None
    with node.stderr:
        # It says nothing and closes this once it is there.
        said = node.stderr.read().decode(errors="replace").strip()
    if said:
        code = node.wait()
        if code not in (0, _TAKEN):
            raise Unreachable(errno.ECONNREFUSED, "no node could be started: " + said)
    else:
        # Nobody waits for its end; who starts another one looks after it.
        _started.append(node)
    return node


def reach(url: str, asked: Dict[str, object]) -> Dict[str, object]:
    """How the store of a URL is reached, with what the environment adds. What AWS's files of profiles say, the node looks up."""
    out = {name: value for name, value in asked.items() if value}
    scheme = url.split("://", 1)[0].lower() if "://" in url else ""
    if scheme == "gs":
        host = os.environ.get("STORAGE_EMULATOR_HOST")
        if host and not out.get("endpoint"):
            out["endpoint"] = host if "://" in host else "http://" + host
            out["anonymous"] = True
    elif scheme in _OF_AZURE:
        host = os.environ.get("AZURE_STORAGE_ENDPOINT")
        if host and "@" not in url:
            out.setdefault("endpoint", host)
    elif scheme == "s3":
        # The node would find these too, as variables go before files; but one of an earlier version that still runs would not,
        # and ask AWS for what is meant to come from a server of one's own. That a profile has variables ignored
        # (`ignore_configured_endpoint_urls`) is known to files alone, and not heeded here.
        somebody = any(os.environ.get(name) for name in _KEYS[:2] + ("AWS_WEB_IDENTITY_TOKEN_FILE",))
        ignored = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true"
        server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        more = {
            "endpoint": None if ignored else server,
            "region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
            "profile": None if somebody else os.environ.get("AWS_PROFILE"),
        }
        for name, value in more.items():
            if value:
                out.setdefault(name, value)
    return out


def credentials(url: str) -> Dict[str, object]:
    """What this environment has that a node of this user needs: it does not share it."""
    scheme = url.split("://", 1)[0].lower() if "://" in url else ""
    keys = {name: os.environ[name] for name in _KEYS if os.environ.get(name)}
    whole = all(name in keys for name in _KEYS[:2])
    out: Dict[str, object] = {}
    if whole:
        out["keys"] = {
            "access_key": keys[_KEYS[0]],
            "secret_key": keys[_KEYS[1]],
            "session_token": keys.get(_KEYS[2]),
        }

    def meant(name: str) -> bool:
        if scheme == "gs":
            return name in _GOOGLE or name in _TRUST
        if scheme in _OF_AZURE:
            return name.startswith("AZURE_") or name in _AZURE or name in _TRUST
        if scheme == "hdfs":
            return name in _HDFS
        if scheme == "s3":
            return name in _AWS or name in _TRUST or name.startswith("AWS_") and not (whole and name in _KEYS)
        return False

    variables = {name: _whole(name, value) for name, value in os.environ.items() if value and meant(name)}
    if scheme == "s3":
        # Without HOME, as in a unit of systemd, there is the home of the password database; that there is none is said too.
        try:
            variables.setdefault("HOME", pwd.getpwuid(os.geteuid()).pw_dir)
        except KeyError:
            variables.setdefault("HOME", "")
    out["variables"] = variables
    return out


def _whole(name: str, value: str) -> str:
    """The path of a file by its whole name: the node, elsewhere, finds it by that alone."""
    at = 0
    if name.startswith("KRB5") and ":" in value:
        kind, path = value.split(":", 1)
        if kind not in ("FILE", "DIR") or path.startswith(":"):
            return value
        at = len(kind) + 1
    elif value.startswith("~"):
        return value
    return value[:at] + os.path.abspath(value[at:]) if name in _PATHS else value
