"""Files that a kernel is made of, and their hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_bench.sources import closure, content_hash


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "common").mkdir()
    (tmp_path / "kernels" / "main.cu").write_text(
        '#include <cuda_fp16.h>\n#include "../common/tile.cuh"\n  #  include "absent.cuh"\n// #include "no.cuh"\n'
    )
    (tmp_path / "common" / "tile.cuh").write_text('#include "types.cuh"\n#include "tile.cuh"\n')
    (tmp_path / "common" / "types.cuh").write_text("using u32 = unsigned;\n")
    return tmp_path


def test_the_closure_follows_quoted_includes_from_where_they_stand(folder: Path) -> None:
    names = [path.relative_to(folder).as_posix() for path in closure(folder / "kernels" / "main.cu")]
    assert names == ["kernels/main.cu", "common/tile.cuh", "common/types.cuh"]


def test_a_source_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert closure(tmp_path / "none.cu") == ()


def test_the_hash_changes_with_any_text_and_the_order_but_not_with_line_ends(folder: Path) -> None:
    files = closure(folder / "kernels" / "main.cu")
    before = content_hash(*files)
    assert content_hash(*files) == before
    assert content_hash(*reversed(files)) != before
    types = folder / "common" / "types.cuh"
    types.write_bytes(types.read_bytes().replace(b"\n", b"\r\n"))
    assert content_hash(*files) == before
    types.write_text("using u32 = int;\n")
    assert content_hash(*files) != before
