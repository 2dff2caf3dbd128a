"""Reads the section sizes of an object file, so that measuring flash needs no binutils."""

import struct
from pathlib import Path

from midge.core.errors import ToolError

MAGIC = b"\x7fELF"
ALLOCATED = 0x2  # SHF_ALLOC: the section takes room on the target
# Class (1: 32 bits, 2: 64 bits) -> section header: struct format, and where e_shoff stands
FORMATS = {1: ("IIIIIIIIII", "I", 32), 2: ("IIQQQQIIQQ", "Q", 40)}
NAME, FLAGS, OFFSET, SIZE = 0, 2, 4, 5  # fields of a section header


def section_sizes(path: Path) -> list[tuple[str, int]]:
    """Return (name, bytes) of every section that takes room on the target, in file order.

    Args:
        path: an ELF object, of any word size and byte order.

    Raises:
        ToolError: the file is no whole ELF object.

    Source: Tool Interface Standard, "Executable and Linking Format", version 1.2 (1995).
    """
    raw = path.read_bytes()
    try:
        return _sections(raw)
    except (struct.error, KeyError, IndexError, ValueError) as error:
        raise ToolError(f"{path.name} is no ELF object: its sections cannot be read.") from error


def _sections(raw: bytes) -> list[tuple[str, int]]:
    if not raw.startswith(MAGIC):
        raise ValueError("no ELF magic number")
    fields, word, where = FORMATS[raw[4]]
    order = "<" if raw[5] == 1 else ">"
    start = struct.unpack_from(order + word, raw, where)[0]
    # e_shentsize, e_shnum and e_shstrndx are the last three halfwords of the header.
    header_bytes = 52 if raw[4] == 1 else 64
    size, count, names_index = struct.unpack_from(f"{order}HHH", raw, header_bytes - 6)
    headers = [struct.unpack_from(order + fields, raw, start + i * size) for i in range(count)]
    names = headers[names_index][OFFSET]

    def name(header: tuple[int, ...]) -> str:
        begin = names + header[NAME]
        return raw[begin : raw.index(b"\0", begin)].decode()

    return [(name(h), h[SIZE]) for h in headers if h[FLAGS] & ALLOCATED]
