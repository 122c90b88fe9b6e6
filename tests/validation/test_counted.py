"""The short cases of every source that runs kernels; and docs/validation.md, which has them among its tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

import pytest

from fa_bench import backends
from fa_bench.backends import spills
from fa_bench.cases import Case
from fa_bench.compiler import nvrtc_available
from fa_bench.model.gpu import Gpu
from fa_bench.report.validation import tables
from fa_bench.validation.result import Validation
from fa_bench.validation.run import Runner
from fa_bench.validation.sources import SOURCES, Tools

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "validation.md").read_text(encoding="utf-8")
COUNTED = [name for name, source in SOURCES.items() if source.runs]
BLOCKS = dict(re.findall(r"(?ms)^<!-- fa-bench validate ([\w-]+) -->\n(.*?)^<!-- end -->$", DOCUMENT))


def no_time(case: Case, gpu: Gpu) -> NoReturn:
    """A source that counts predicts nothing."""
    raise AssertionError(f"{case.impl} was to be predicted for {gpu.slug}")


@pytest.fixture(scope="module")
def counted() -> dict[str, Validation]:
    if reason := nvrtc_available():
        pytest.skip(reason)
    backend = backends.open_backend("emulator", counters="full")
    runner = Runner(backend, with_spills=spills.dram_bytes)
    found = {name: SOURCES[name].validate(Tools(no_time, lambda: runner, quick=True)) for name in COUNTED}
    backend.close()
    return found


def test_the_document_has_every_source() -> None:
    assert list(BLOCKS) == list(SOURCES)


def test_nothing_fails(counted: dict[str, Validation]) -> None:
    assert [failure for found in counted.values() for failure in found.failures] == []


def test_reads_of_flash_attention_2_on_an_a30(counted: dict[str, Validation]) -> None:
    reads, dram = counted["ncu-traffic"].comparisons
    # Worked out in test_ncu_traffic.py for the causal row and the windows; without the mask 4 tiles see 8 blocks each:
    # 32 · (512 + 4 · 512 + 4 · 512) · 256. The two rows of a window come first.
    plain = [37_748_736, 25_165_824] * 2
    assert [row["global_read_bytes_emulated"] for row in reads.rows] == [25_165_824, 18_874_368, *plain]
    assert all(abs(row["l2_read_deviation"]) < 0.013 for row in reads.rows)
    # All of O and LSE is still in L2, half full: DRAM sees the inputs, 6,291,456 bytes, and 6.30 MB were measured.
    assert [row["dram_bytes_emulated"] for row in dram.rows] == [6_291_456] * 6
    assert [row["l2_dirty_bytes_emulated"] for row in dram.rows] == [4_259_840] * 6


def test_sectors_on_a_gb10(counted: dict[str, Validation]) -> None:
    (sectors,) = counted["gb10"].comparisons
    # S = 1024 and T = 64: 8 · 1024 · 17 and LSE 128; causal, worked out in test_gb10.py. S = 1600 and T = 80:
    # 8 · 1600 · 21 and LSE 200; causal: 20 tiles read 210 blocks of 640 sectors, Q and O 12,800, LSE 200.
    assert [row["sectors_emulated"] for row in sectors.rows] == [139_392, 77_952, 269_000, 147_400]


@pytest.mark.parametrize("name", COUNTED)
def test_the_document_has_what_is_counted(name: str, counted: dict[str, Validation]) -> None:
    block = BLOCKS[name]
    for table, comparison in zip(tables(counted[name]), [*counted[name].comparisons, None], strict=False):
        title, grid, *_ = table.markdown().split("\n\n")
        head, rule, *rows = grid.splitlines()
        assert f"{title}\n\n{head}\n{rule}\n" in block
        if comparison is None:
            assert f"\n{grid}\n" in block
        else:  # the quick rows are some of those in the document
            assert rows
            assert all(f"\n{row}\n" in block for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_the_document_is_what_the_command_prints(name: str) -> None:
    if reason := nvrtc_available():
        pytest.skip(reason)
    backend = backends.open_backend("emulator", counters="full")
    runner = Runner(backend, with_spills=spills.dram_bytes)
    found = SOURCES[name].validate(Tools(no_time, lambda: runner))
    backend.close()
    assert found.failures == ()
    assert "\n\n".join(table.markdown() for table in tables(found)) + "\n" == BLOCKS[name]
