import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from midge.core import native
from midge.core.errors import InputError, ToolError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MIDGE_CACHE", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "value.h").write_text("#define VALUE 41\n")
    path = tmp_path / "answer.c"
    path.write_text('#include "value.h"\nint answer(void) { return VALUE + 1; }\n')
    return path


def answer(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).answer())


def test_a_shared_library_is_compiled_and_loaded(source: Path) -> None:
    assert answer(native.compile_shared([source])) == 42


def test_the_same_source_is_compiled_once(source: Path, cache: Path) -> None:
    first = native.compile_shared([source])
    stamp = first.stat().st_mtime_ns
    assert native.compile_shared([source]) == first
    assert first.stat().st_mtime_ns == stamp
    assert first.parent == cache


def test_programs_share_the_objects_of_their_sources(tmp_path: Path, cache: Path) -> None:
    for name, text in (
        ("shared", "int shared(void) { return 0; }"),
        ("one", "int shared(void); int main(void) { return shared(); }"),
        ("two", "int shared(void); int main(void) { return 2 + shared(); }"),
    ):
        (tmp_path / f"{name}.c").write_text(text)
    programs = [
        native.compile_program([tmp_path / "shared.c", tmp_path / f"{name}.c"])
        for name in ("one", "two")
    ]
    assert [subprocess.run([p], check=False).returncode for p in programs] == [0, 2]
    assert len(list(cache.glob("shared-*.o"))) == 1
    (tmp_path / "shared.c").write_text("int shared(void) { return 5; }")
    program = native.compile_program([tmp_path / "shared.c", tmp_path / "one.c"])
    assert subprocess.run([program], check=False).returncode == 5


def test_the_objects_of_large_sources_are_not_kept(tmp_path: Path, cache: Path) -> None:
    large, main = tmp_path / "large.c", tmp_path / "main.c"
    large.write_text("int zero(void) { return 0; }\n" + "/* weights */\n" * 20000)
    main.write_text("int zero(void); int main(void) { return zero(); }")
    assert subprocess.run([native.compile_program([main, large])], check=False).returncode == 0
    assert list(cache.glob("main-*.o"))
    assert not list(cache.glob("large-*.o"))


def test_a_changed_header_gives_another_result(source: Path) -> None:
    first = native.compile_shared([source])
    (source.parent / "value.h").write_text("#define VALUE 1\n")
    second = native.compile_shared([source])
    assert first != second
    assert answer(second) == 2


def test_a_header_in_an_include_folder_is_part_of_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "inc" / "deep"
    folder.mkdir(parents=True)
    (folder / "n.h").write_text("#define N 1\n")
    source = tmp_path / "n.c"
    source.write_text("#include <deep/n.h>\nint answer(void) { return N; }\n")
    assert answer(native.compile_shared([source], include=[folder.parent])) == 1
    (folder / "n.h").write_text("#define N 2\n")
    assert answer(native.compile_shared([source], include=[folder.parent])) == 2
    (folder / "n.h").write_text("#define N 3\n")
    assert answer(native.compile_shared([source], flags=[f"-I{folder.parent}"])) == 3


def test_other_flags_give_another_result(source: Path) -> None:
    assert native.compile_shared([source], flags=["-O1"]) != native.compile_shared([source])


def test_a_program_is_put_where_it_is_wanted(tmp_path: Path) -> None:
    source = tmp_path / "main.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    program = native.compile_program([source], tmp_path / "bin" / "hello", flags=["-O0", "-lm"])
    assert subprocess.run([program], capture_output=True, text=True).stdout == "hello\n"
    assert [p.name for p in program.parent.iterdir()] == ["hello"]


def test_a_failure_is_told_in_the_words_of_the_compiler(source: Path, cache: Path) -> None:
    source.write_text("int answer(void) { return missing; }\n")
    with pytest.raises(ToolError, match=r"answer\.c.*\n.*error.*missing"):
        native.compile_shared([source])
    assert not list(cache.glob("answer*"))
    assert not list(cache.glob("build-*"))


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.c.*cannot be read"):
        native.compile_shared([tmp_path / "gone.c"])


def test_native_flags_never_reach_the_cache(source: Path) -> None:
    with pytest.raises(InputError, match="march=native is refused"):
        native.compile_shared([source], flags=["-march=native"])


def test_an_unknown_compiler_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no-such-cc.*install gcc"):
        native.find_compiler("no-such-cc")
    monkeypatch.setenv("CC", "also-missing")
    with pytest.raises(InputError, match=r"CC.*also-missing"):
        native.find_compiler()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="no C compiler found"):
        native.find_compiler()


def test_cc_in_the_environment_may_hold_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    found = native.find_compiler()
    monkeypatch.setenv("CC", f"{found.argv[0]} -DX=1")
    assert native.find_compiler().argv == (found.argv[0], "-DX=1")


def test_an_unwritable_cache_falls_back_to_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("MIDGE_CACHE", str(blocker / "inside"))
    monkeypatch.setattr(native.tempfile, "tempdir", str(tmp_path))
    native._temporary_cache.cache_clear()
    folder = native.cache_directory()
    native._temporary_cache.cache_clear()
    assert folder.stat().st_mode & 0o077 == 0
    assert os.access(folder, os.W_OK)


def test_a_temporary_folder_that_others_can_write_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native.tempfile, "tempdir", str(tmp_path))
    planted = tmp_path / f"midge-cache-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    native._temporary_cache.cache_clear()
    folder = native._temporary_cache()
    native._temporary_cache.cache_clear()
    assert folder != planted


def test_four_processes_compile_once(source: Path, tmp_path: Path) -> None:
    # A compiler that is slow and counts its calls makes a race visible.
    counter = tmp_path / "calls"
    wrapper = tmp_path / "slowcc"
    real = native.find_compiler().argv[0]
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) ;; *) echo x >> {counter}; sleep 0.3;; esac\n'
        f'exec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    script = (
        "import sys, ctypes\nfrom pathlib import Path\nfrom midge.core import native\n"
        "lib = native.compile_shared([Path(sys.argv[1])])\n"
        "assert ctypes.CDLL(str(lib)).answer() == 42\nprint(lib)\n"
    )
    environment = {**os.environ, "CC": str(wrapper)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(source)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    printed = {w.communicate(timeout=60)[0] for w in workers}
    assert [w.returncode for w in workers] == [0, 0, 0, 0]
    assert len(printed) == 1
    assert counter.read_text() == "x\n"


def test_the_lock_of_a_killed_process_does_not_block(source: Path, cache: Path) -> None:
    cache.mkdir()
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom contextlib import ExitStack\n"
        "from midge.core import native\nstack = ExitStack()\n"
        "for d in '0123456789abcdef':\n"
        "    stack.enter_context(native._lock(Path(sys.argv[1]) / f'lock-{d}'))\n"
        "print('locked', flush=True)\ntime.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(cache)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "locked\n"
        holder.kill()
    start = time.monotonic()
    assert answer(native.compile_shared([source])) == 42
    assert time.monotonic() - start < 30


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs /proc/cpuinfo")
def test_cpu_features_are_the_names_of_the_kernel() -> None:
    features = native.cpu_features()
    assert features
    assert all(name == name.lower() and " " not in name for name in features)
