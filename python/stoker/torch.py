"""Data sets for torch's DataLoader, which asks for a batch at a time. torch itself is not imported.

>>> from stoker.torch import ImageFolder
>>> images = ImageFolder(URL, loader=bytes)
>>> images.classes
['cat', 'dog']
>>> images[0]
(b'one', 0)
>>> images.__getitems__([2, 0])                   # what a DataLoader asks: one question for all of them
[(b'three', 1), (b'one', 0)]
"""

import array
import errno
import hashlib
import io
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import order
from .data import Data
from .data import open as _open

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def picture(content: bytes) -> Any:
    """What torchvision's ImageFolder makes of a file."""
    from PIL import Image  # type: ignore[import-not-found, unused-ignore]

    return Image.open(io.BytesIO(content)).convert("RGB")


def hint(loader: Any) -> bool:
    """Say what a DataLoader will read in the epoch that is about to begin, and in which order, so that the node has each file there
    in time. Whether a node took it: none does where the files lie in no mount of Stoker, nor in a data set of this module, or were listed
    anew since that was made; nor one that is gone. Of an order of millions as much is said as one request has room for.

    The epoch is the same, bit for bit, with it and without. `stoker status` shows how many opens it named and how many it missed.

    >>> import stoker.torch
    >>> from torch.utils.data import DataLoader
    >>> loader = DataLoader(stoker.torch.Files(URL, transform=len), batch_size=2, shuffle=True)
    >>> stoker.torch.hint(loader)
    True
    >>> sum(int(length) for batch in loader for length in batch)
    11

    A sampler that may do anything when it is asked is not asked, and is a ValueError: say `data.hint(names)` yourself then.
    """
    return order.hint(loader)


class Files:
    """Files of a data set by number: all of them in the order of their names, or those that are named.

    A number means the same file in each worker for as long as this lives. What is pickled to one is where the data set is and
    which listing was numbered, and never the names, unless they were given; a worker that finds another listing, since the data set
    was refreshed meanwhile, raises OSError with ESTALE.
    """

    def __init__(
        self,
        data: Union[str, "os.PathLike[str]", Data],
        names: Optional[Sequence[str]] = None,
        transform: Optional[Callable[[bytes], Any]] = None,
        **asked: Any,
    ) -> None:
        self.data = data if isinstance(data, Data) else _open(data, **asked)
        self.transform = transform
        self._given = names
        self._names: Optional[Sequence[str]] = names
        #: Of the names as they are listed: what tells them from others, and the number of each file among them.
        self._listing, self._listed = "", 0
        self._places: Sequence[int] = ()
        self._number()

    def _number(self) -> Sequence[str]:
        """Number the files, if this process has not."""
        if self._names is None:
            listed = self.data.list()
            listing = hashlib.sha256("\0".join(listed).encode("utf-8", "surrogatepass")).hexdigest()
            if self._listing not in ("", listing):
                what = "its files were listed anew since they were numbered (try: make the data set anew)"
                raise OSError(errno.ESTALE, what, self.data.url)
            self._listing, self._listed, self._names = listing, len(listed), self._chosen(listed)
        return self._names

    def _chosen(self, listed: List[str]) -> Sequence[str]:
        """Which of the files that are listed, in the order of their numbers."""
        self._places = range(len(listed))
        return listed

    @property
    def files(self) -> Sequence[str]:
        """The names, in the order of their numbers."""
        return self._number()

    def __stoker_hint__(self, numbers: Sequence[int], name: str, source: str) -> Dict[str, Any]:
        """Say in which order files will be read, by their numbers here; for `order`, which knows no more of a data set."""
        if self._given is not None:
            return self.data.hint((self._given[number] for number in numbers), name, source=source)
        # Few bytes each, if they are numbered alike there.
        files, places = self.files, self._places
        some = sorted({at * (len(files) - 1) // 63 for at in range(64)}) if files else []
        witnesses = [{"number": places[at], "name": files[at]} for at in some]
        expected = {"files": self._listed, "names": witnesses}
        return self.data.hint((places[number] for number in numbers), name, source=source, expected=expected)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> List[Any]:
        found = self.data.read_many([self.files[number] for number in numbers])
        return [self._made(number, content) for number, content in zip(numbers, found)]

    def _made(self, number: int, content: bytes) -> Any:
        return content if self.transform is None else self.transform(content)

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_names": self._given, "_places": ()}


class ImageFolder(Files):
    """Images in one folder a class, numbered as torchvision's ImageFolder numbers them."""

    def __init__(
        self,
        data: Union[str, "os.PathLike[str]", Data],
        transform: Optional[Callable[[Any], Any]] = None,
        target_transform: Optional[Callable[[int], Any]] = None,
        loader: Callable[[bytes], Any] = picture,
        extensions: Sequence[str] = EXTENSIONS,
        **asked: Any,
    ) -> None:
        self.target_transform = target_transform
        self.loader = loader
        self.extensions = tuple(extensions)
        self._classes: List[str] = []
        self._targets: List[int] = []
        super().__init__(data, None, transform, **asked)

    def _chosen(self, listed: List[str]) -> Sequence[str]:
        places = [at for at, name in enumerate(listed) if "/" in name]
        self._classes = sorted({listed[at].split("/", 1)[0] for at in places})
        number = {name: at for at, name in enumerate(self._classes)}
        places = [at for at in places if listed[at].lower().endswith(self.extensions)]
        # A folder's own files come before those of the folders in it.
        places.sort(key=lambda at: (listed[at].split("/", 1)[0],) + tuple(listed[at].rsplit("/", 1)))
        self._places = array.array("I", places)
        images = [listed[at] for at in places]
        self._targets = [number[name.split("/", 1)[0]] for name in images]
        return images

    @property
    def classes(self) -> List[str]:
        self._number()
        return self._classes

    @property
    def class_to_idx(self) -> Dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def targets(self) -> List[int]:
        self._number()
        return self._targets

    @property
    def samples(self) -> List[Tuple[str, int]]:
        return list(zip(self.files, self.targets))

    imgs = samples

    def _made(self, number: int, content: bytes) -> Any:
        image = self.loader(content)
        if self.transform is not None:
            image = self.transform(image)
        target = self.targets[number]
        return image, target if self.target_transform is None else self.target_transform(target)

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "_classes": [], "_targets": []}
