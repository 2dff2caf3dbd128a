import os
import subprocess
import sys

import pytest

from midge.core import threads
from midge.core.errors import InputError

# An odd number that no machine has by default, but never more than BLAS was built for.
COUNT = 3
SCRIPT = "import midge.core; from midge.core import threads; print(threads.get_num_threads())"

needs_blas = pytest.mark.skipif(
    threads.get_num_threads() is None, reason="this BLAS does not tell its number of threads"
)


def printed(**environment: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


@needs_blas
def test_products_use_one_thread_unless_the_environment_says_otherwise() -> None:
    assert printed() == "1"
    assert printed(OPENBLAS_NUM_THREADS="2") == "2"


@needs_blas
def test_the_number_can_be_changed() -> None:
    before = threads.get_num_threads()
    assert before is not None
    try:
        threads.set_num_threads(COUNT)
        assert threads.get_num_threads() == COUNT
    finally:
        threads.set_num_threads(before)


def test_less_than_one_thread_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        threads.set_num_threads(0)
