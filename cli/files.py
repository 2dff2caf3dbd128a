"""Files that appear whole or not at all."""

import os
import tempfile
from pathlib import Path

from midge.core.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write `text` to a temporary name beside `path`, then rename it.

    Raises:
        InputError: the directory or file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)  # mkstemp's 0600 is for secrets
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"{path}: cannot be written: {error.strerror}.") from error
        raise
