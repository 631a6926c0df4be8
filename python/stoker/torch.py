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

import io
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from .data import Data
from .data import open as _open

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def picture(content: bytes) -> Any:
    """What torchvision's ImageFolder makes of a file."""
    from PIL import Image  # type: ignore[import-not-found, unused-ignore]

    return Image.open(io.BytesIO(content)).convert("RGB")


class Files:
    """Files of a data set by number: all of them in the order of their names, or those that are named.

    What is pickled to a worker is where the data set is, and never the names, unless they were given.
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

    @property
    def files(self) -> Sequence[str]:
        """The names, in the order of their numbers."""
        if self._names is None:
            self._names = self.data.list()
        return self._names

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
        return {**self.__dict__, "_names": self._given}


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
        super().__init__(data, None, transform, **asked)
        self.target_transform = target_transform
        self.loader = loader
        self.extensions = tuple(extensions)
        self._classes: Optional[List[str]] = None
        self._targets: List[int] = []

    def _look(self) -> List[str]:
        if self._classes is None:
            names = [name for name in self.data.list() if "/" in name]
            classes = sorted({name.split("/", 1)[0] for name in names})
            number = {name: at for at, name in enumerate(classes)}
            images = [name for name in names if name.lower().endswith(self.extensions)]
            # A folder's own files come before those of the folders in it.
            images.sort(key=lambda name: (name.split("/", 1)[0],) + tuple(name.rsplit("/", 1)))
            self._names, self._classes = images, classes
            self._targets = [number[name.split("/", 1)[0]] for name in images]
        return self._classes

    @property
    def files(self) -> Sequence[str]:
        self._look()
        return self._names or []

    @property
    def classes(self) -> List[str]:
        return self._look()

    @property
    def class_to_idx(self) -> Dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def targets(self) -> List[int]:
        self._look()
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
        return {**super().__getstate__(), "_classes": None, "_targets": []}
