import numpy as np
import pytest

from midge.core.kernels import library


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(params=["c", "twin"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test once with the compiled kernels and once with their twins."""
    if request.param == "c" and library.load() is None:
        pytest.skip("no C compiler")
    if request.param == "twin":
        monkeypatch.setattr(library, "load", lambda: None)
    return str(request.param)
