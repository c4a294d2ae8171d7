"""Arrays in a file, read without trusting it."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from archipel.errors import BadInput


def arrays_in(path: Path, key: str) -> dict[str, Any]:
    """All arrays of an npz file; a torn file, or one with Python objects in it, is refused under the key."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, TypeError, EOFError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise BadInput(key, path.name, "an npz file with arrays of numbers") from None
