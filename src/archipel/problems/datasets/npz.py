"""Arrays in a file, read without trusting it."""

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from archipel.errors import BadInput


def arrays_in(path: Path, key: str, wanted: Iterable[str] = ()) -> dict[str, Any]:
    """All arrays of an npz file; a torn file, or one with Python objects in it, is refused under the key.

    So is one that lacks an array that is wanted.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, TypeError, EOFError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise BadInput(key, path.name, "an npz file with arrays of numbers") from None
    for name in wanted:
        if name not in arrays:
            raise BadInput(key, path.name, f'an array "{name}" in it')
    return arrays
