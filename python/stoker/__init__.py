"""Read a bucket at the speed of the local disk, where nothing can be mounted.

>>> import stoker
>>> data = stoker.open(URL)                       # s3://bucket/train, gs://..., az://..., hdfs://..., or a folder
>>> data.list()
['cat/1.jpg', 'cat/2.jpg', 'dog/1.jpg']
>>> data.read('cat/1.jpg')
b'one'
>>> data.read_many(['dog/1.jpg', 'cat/2.jpg'])    # one question, however many names
[b'three', b'two']

A node of this machine fetches, keeps and lends; it is started if there is none, and ends with its last reader. Set
`STOKER_SOCKET` to the data socket of one that is there, such as one mounted into a container.

Nothing here runs in a thread, holds a lock over a call or needs compiling: fork, spawn and forkserver as you like.
"""

from typing import Any

from ._place import find_bin
from ._wire import Unreachable
from .data import Data, open, status

__all__ = ["Data", "Unreachable", "find_bin", "open", "status"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`stoker.torch` and `stoker.fsspec` come when they are asked for, with the libraries that they need."""
    if name in ("fsspec", "torch"):
        import importlib

        return importlib.import_module("." + name, __name__)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
