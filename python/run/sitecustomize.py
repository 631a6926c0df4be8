"""Brought by `stoker run` into each Python of a job: once torch's loaders are imported, they tell what they will read.

Imports nothing that isn't there already, never raises, says nothing. STOKER_HINT=off leaves it out. The sitecustomize that
this one hides runs afterwards, as if this one weren't there.
"""

import os
import sys


class _Finder:
    """Waits for torch's loaders to be imported, once."""

    is_done = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch.utils.data.dataloader" or self.is_done:
            return None
        self.is_done = True
        try:
            others = [finder for finder in sys.meta_path if finder is not self]
            spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
            execute, wrap = spec.loader.exec_module, _wrap

            def exec_module(module):
                execute(module)
                wrap(module)

            spec.loader.exec_module = exec_module
            return spec
        except Exception:
            return None


def _wrap(module):
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("_stoker_order", os.path.join(_HERE, "_stoker_order.py"))
        order = module_from_spec(spec)
        spec.loader.exec_module(order)
        order.wrap(module.DataLoader)
    except Exception:
        pass


def _leave_path():
    """Nobody else finds this folder."""
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]


def _hidden():
    """The sitecustomize that Python would have found."""
    try:
        from _frozen_importlib_external import PathFinder

        return PathFinder.find_spec("sitecustomize")
    except Exception:
        return None


_HERE = os.path.dirname(os.path.abspath(__file__))
_leave_path()
# Python 2 asks such a finder otherwise.
if sys.version_info[0] > 2 and os.environ.get("STOKER_HINT") != "off":
    sys.meta_path.insert(0, _Finder())
_spec = _hidden()
if _spec is not None and _spec.loader is not None:
    from _frozen_importlib import module_from_spec as _module_from_spec

    _module = sys.modules["sitecustomize"] = _module_from_spec(_spec)
    # Its own errors are told by Python as ever.
    _spec.loader.exec_module(_module)
