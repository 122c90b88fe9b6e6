"""Caches of files: whole entries, bounded, least recently used out first; never an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fa_bench.filecache import CACHES, FileCache, cache_dir


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCache:
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "place"))
    return FileCache("things", limit_bytes=10)


def test_what_is_written_is_read(cache: FileCache) -> None:
    assert cache.read("a") is None
    cache.write("a", b"\x00one")
    assert cache.read("a") == b"\x00one"
    cache.write("a", b"two")
    assert cache.read("a") == b"two"
    info = cache.info()
    assert (info.folder, info.entries, info.nbytes, info.limit_bytes) == (cache_dir() / "things", 1, 3, 10)


def test_nothing_but_entries_is_left_behind(cache: FileCache) -> None:
    cache.write("a", b"one")
    assert [path.name for path in cache.folder.iterdir()] == ["a"]


def test_the_least_recently_used_entries_go_first(cache: FileCache) -> None:
    for age, key in ((300, "old"), (200, "older use"), (100, "young")):
        cache.write(key, b"123")
        path = cache.folder / key
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert cache.read("old") == b"123"  # now the last one used
    cache.write("new", b"1234")  # 9 + 4 bytes of 10: one entry of 3 must go
    assert sorted(path.name for path in cache.folder.iterdir()) == ["new", "old", "young"]


def test_clearing_spares_an_entry_that_is_being_written(cache: FileCache) -> None:
    cache.write("a", b"1")
    cache.write("b", b"2")
    (cache.folder / "c.tmp").write_bytes(b"half")
    assert cache.clear() == 2
    assert [path.name for path in cache.folder.iterdir()] == ["c.tmp"]
    assert cache.info().entries == 0


def test_a_failed_write_leaves_no_half_entry(cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("a", b"1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache.write("a", b"2")
    assert [path.read_bytes() for path in cache.folder.iterdir()] == [b"1"]


def test_a_folder_that_cannot_be_made_is_an_empty_cache(
    cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "file"))
    cache.write("a", b"1")
    assert cache.read("a") is None
    assert (cache.info().entries, cache.clear()) == (0, 0)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, lambda home: Path("/x/fa-bench")),
        ("linux", {}, lambda home: home / ".cache" / "fa-bench"),
        ("darwin", {}, lambda home: home / "Library" / "Caches" / "fa-bench"),
        ("win32", {"LOCALAPPDATA": "/local"}, lambda home: Path("/local/fa-bench/Cache")),
        ("linux", {"FA_BENCH_CACHE": "/mine", "XDG_CACHE_HOME": "/x"}, lambda home: Path("/mine")),
    ],
)
def test_the_place_follows_the_system(
    platform: str,
    variables: dict[str, str],
    expected: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("FA_BENCH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_dir() == expected(tmp_path)


def test_the_caches_have_folders_of_their_own() -> None:
    assert [cache.name for cache in CACHES] == ["kernels", "emulator", "peaks"]


def test_what_a_killed_process_left_goes_after_an_hour(cache: FileCache) -> None:
    cache.write("a", b"1")
    abandoned = cache.folder / "b.tmp"
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (0, 0))
    assert cache.info().entries == 2
    assert cache.clear() == 2
    assert list(cache.folder.iterdir()) == []
