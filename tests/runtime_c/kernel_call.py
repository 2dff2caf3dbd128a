"""Calls one C kernel on one record, every buffer of it between pages that must not be touched.

    after = calls("midge_add_s8_avx2", words, {"MIDGE_OP_X": a, "MIDGE_ADD_B": b, "MIDGE_OP_Y": y})

Each call runs twice in another process: with every buffer at the end of its pages, then at the
start of them. Bytes of those pages outside a buffer must keep their value, and both runs must
give the same result.
"""

import ctypes
import mmap
import pickle
import re
import signal
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

PAGE = mmap.PAGESIZE
SCRATCH = "MIDGE_OP_SCRATCH"
SCRATCH_ALIGNMENT = 16
ALIGNMENT = 4  # of buffers whose length allows it; constants are read as words
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off")
FILL = {"end": 0xA5, "start": 0x5A}  # of what lies beside a buffer in its pages, and of scratch
# What /proc/cpuinfo calls the instructions of a level.
LEVELS = {
    "avx2": {"avx2", "fma"},
    "avxvnni": {"avx2", "fma", "avx_vnni"},
    "avx512f": {"avx2", "fma", "avx512f"},
    "avx512vnni": {"avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"},
}


class KernelCall:
    """Compiles kernels and calls them in a process that may crash; close it when done.

    Args:
        runtime: folder with include/, src/ and x86/.
        flags: of the compiler.
        pretend: run every level whether or not this processor has it; for flags that emulate it.
    """

    def __init__(self, runtime, flags=FLAGS, pretend=False):
        self.runtime, self.flags, self.pretend = Path(runtime), tuple(flags), pretend
        self.files = {p.stem: p for folder in ("src", "x86") for p in self._sources(folder)}
        self.worker = None

    def _sources(self, folder):
        return sorted((self.runtime / folder).glob("midge_*.c"))

    def levels(self, base):
        """Return the kernels beside the portable `base` that this processor can run."""
        from midge.core.native import cpu_features

        able = [n for n, needs in LEVELS.items() if self.pretend or needs <= cpu_features()]
        return [f"{base}_{n}" for n in able if f"{base}_{n}" in self.files]

    @cache  # noqa: B019 - lives as long as the test session
    def library(self, kernel):
        """Return the shared library of a kernel and of the kernels that it calls."""
        from midge.core.native import compile_shared

        wanted, found = [kernel], {}
        while wanted:
            name = wanted.pop()
            if name not in found:
                found[name] = self.files[name]
                wanted += [w for w in _names(self.runtime, found[name]) if w in self.files]
        include = [self.runtime / "include", self.runtime / "x86"]
        include = [folder for folder in include if folder.is_dir()]
        return compile_shared(list(found.values()), flags=self.flags, include=include)

    def __call__(self, kernel, words, buffers, data=b"", *, rows=(0, 1), scratch=0, same=()):
        """Run a kernel and return what the buffers then hold, by the names of their words.

        Args:
            kernel: name of the C function and of its file.
            words: enumerator of midge_model.h or (enumerator, + n) to number, float32 or pair.
            buffers: enumerator of the word that holds its offset to initial content, an array or
                bytes. "MIDGE_OP_X" and "MIDGE_OP_Y" are wanted by nearly every kernel.
            data: array or bytes of the constants; the record's word MIDGE_OP_DATA is left at 0.
            rows: first and last (excluded).
            scratch: bytes.
            same: (name, other) or (name, other, shift): word `name` gets the offset of buffer
                `other`, plus `shift` bytes.

        Raises:
            AssertionError: it touched what it must not, or its two runs differ.
        """
        record = [0] * self.number("MIDGE_OP_WORDS")
        for key, value in words.items():
            name, more = key if isinstance(key, tuple) else (key, 0)
            record[self.number(name) + more] = word(value)
        pieces = {name: raw(content) for name, content in buffers.items()}
        index = {name: self.number(name) for name in (*pieces, *(s[0] for s in same))}
        job = {
            "library": str(self.library(kernel)),
            "kernel": kernel,
            "record": record,
            "pieces": pieces,
            "index": index,
            "scratch_index": self.number(SCRATCH) if scratch else None,
            "data": raw(data),
            "rows": tuple(rows),
            "scratch": scratch,
            "same": tuple(same),
        }
        results = [self._ask(job, where) for where in ("end", "start")]
        assert results[0] == results[1], f"{kernel} depends on bytes that are not its own"
        return results[0]

    def value(self, function, file):
        """Return what the C function `uint32_t function(void)` of a file returns."""
        found = getattr(ctypes.CDLL(str(self.library(file))), function)
        found.restype = ctypes.c_uint32
        return found()

    def number(self, name):
        """Return the value of an enumerator or of a plain #define."""
        return _numbers(self.runtime)[name]

    def _ask(self, job, where):
        if self.worker is None:
            command = [sys.executable, "-S", str(Path(__file__).absolute())]
            self.worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        send(self.worker.stdin, {**job, "where": where})
        answer = receive(self.worker.stdout)
        if answer is None:
            status = self.worker.wait()
            self.close()
            if status >= 0:
                raise AssertionError(f"{job['kernel']} could not be called (status {status})")
            name = signal.Signals(-status).name
            outside = name in ("SIGSEGV", "SIGBUS")
            raise AssertionError(
                f"{job['kernel']} {'touched memory outside its buffers' if outside else 'crashed'} "
                f"({name}) with every buffer at the {where} of its pages; record {job['record']}, "
                f"rows {job['rows']}"
            )
        assert not answer["spoilt"], (
            f"{job['kernel']} wrote beside {answer['spoilt']} with every buffer at the {where} of "
            f"its pages; record {job['record']}, rows {job['rows']}"
        )
        return answer["pieces"]

    def close(self):
        """End the process."""
        if self.worker is not None:
            self.worker.stdin.close()
            self.worker.stdout.close()
            self.worker.wait()
            self.worker = None


def _names(runtime, path):
    """Return the names in a source and in the x86 headers that it includes, prototypes left out."""
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"\bmidge_\w+", text)
    for header in re.findall(r'#include "(midge_\w+\.h)"', text):
        inner = runtime / "x86" / header
        if header != "midge_x86.h" and inner.is_file():
            names += _names(runtime, inner)
    return names


@cache
def _numbers(runtime):
    headers = (runtime / "include" / name for name in ("midge_model.h", "midge_model_f32.h"))
    text = "".join(path.read_text(encoding="utf-8") for path in headers if path.exists())
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = re.findall(r"^\s+(MIDGE_\w+) = (\d+)", text, re.MULTILINE)
    found += re.findall(r"^#define (MIDGE_\w+) (\w+)$", text, re.MULTILINE)
    return {name: int(value.rstrip("u"), 0) for name, value in found if value[0].isdigit()}


def codes(x_zero_point, y_zero_point, low=-128, high=127):
    """Return MIDGE_CODES."""
    return int.from_bytes(struct.pack("4b", x_zero_point, y_zero_point, low, high), "little")


def word(value):
    """Return the 32 bits of an integer, a float32 or a pair of numbers below 2^16."""
    if isinstance(value, tuple | list):
        return value[0] | value[1] << 16
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        return int(value.view("uint32"))
    return int(value) & 0xFFFFFFFF


def raw(content):
    """Return the bytes of an array or of bytes."""
    return content if isinstance(content, bytes) else content.tobytes()


# The other process: it needs neither NumPy nor midge.


class Strip(ctypes.Structure):
    """midge_strip."""

    _fields_ = (
        ("arena", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("kernels", ctypes.c_void_p),
        ("first", ctypes.c_uint32),
        ("last", ctypes.c_uint32),
        ("scratch", ctypes.c_void_p),
    )


def send(stream, message):
    body = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(body)) + body)
    stream.flush()


def receive(stream):
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0])) if len(head) == 8 else None


def place(pieces, where):
    """Return the bytes to map and, for each piece, its offset; before and after each is a page."""
    image, offsets = b"\0" * PAGE, {}
    for name, content in pieces.items():
        pages = max(1, -(-len(content) // PAGE)) * PAGE
        step = SCRATCH_ALIGNMENT if name == SCRATCH else ALIGNMENT if name == "data" else 1
        before = (pages - len(content)) // step * step if where == "end" else 0
        offsets[name] = len(image) + before
        block = bytes([FILL[where]]) * before + content
        image += block.ljust(pages, bytes([FILL[where]])) + b"\0" * PAGE
    return image, offsets


def guard(base, pieces, offsets, size):
    """Forbid the pages between the pieces."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    used = set()
    for name, content in pieces.items():
        first, last = offsets[name] // PAGE, (offsets[name] + max(1, len(content)) - 1) // PAGE
        used |= set(range(first, last + 1))
    for page in set(range(size // PAGE)) - used:
        if protect(base + page * PAGE, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return protect


def carry_out(job):
    """Run the kernel of a job once."""
    pieces = {**job["pieces"], "data": job["data"]}
    if job["scratch"]:
        pieces[SCRATCH] = bytes([FILL[job["where"]]]) * job["scratch"]
    image, offsets = place(pieces, job["where"])
    function = getattr(ctypes.CDLL(job["library"]), job["kernel"])
    function.restype = None
    with mmap.mmap(-1, len(image)) as memory:
        memory[:] = image
        held = ctypes.c_char.from_buffer(memory)
        base = ctypes.addressof(held)
        record = (ctypes.c_uint32 * len(job["record"]))(*job["record"])
        for name in job["pieces"]:
            record[job["index"][name]] = offsets[name]
        for name, other, *shift in job["same"]:
            record[job["index"][name]] = offsets[other] + sum(shift)
        strip = Strip(base, base + offsets["data"], None, *job["rows"], None)
        if job["scratch"] and job["where"] == "start":
            strip.scratch = base + offsets[SCRATCH]  # in place of the record's
            record[job["scratch_index"]] = 0
        elif job["scratch"]:
            record[job["scratch_index"]] = offsets[SCRATCH]
        protect = guard(base, pieces, offsets, len(image))
        function(ctypes.byref(strip), record)
        protect(base, len(image), 3)
        after = memory[:]
        del held
    return compare(job, pieces, image, offsets, after)


def compare(job, pieces, image, offsets, after):
    """Return the pieces as they are now, and the names of those beside which bytes changed."""
    spoilt = []
    for name, content in pieces.items():
        first = offsets[name] // PAGE * PAGE
        start, end = offsets[name], offsets[name] + len(content)
        last = first + max(1, -(-len(content) // PAGE)) * PAGE
        beside = image[first:start] + image[end:last] != after[first:start] + after[end:last]
        if beside or (name == "data" and after[start:end] != content):
            spoilt.append(name)
    found = {n: after[offsets[n] : offsets[n] + len(c)] for n, c in job["pieces"].items()}
    return {"pieces": found, "spoilt": spoilt}


def serve():
    """Answer jobs until there are no more."""
    while (job := receive(sys.stdin.buffer)) is not None:
        send(sys.stdout.buffer, carry_out(job))


if __name__ == "__main__":
    serve()
