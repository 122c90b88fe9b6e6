"""``fa-bench trace``: tables of 80 columns, JSON, CSV, the page, and errors in a sentence."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fa_bench import nvrtc
from fa_bench.cli.app import run
from fa_bench.compiler import nvrtc_available, ptx_available

pytestmark = pytest.mark.skipif(ptx_available() is not None, reason=str(ptx_available()))
needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))

#: Three tiles of 16 queries, three of 16 keys, the last of each cut: 40 = 16 + 16 + 8.
SMALL = ("trace", "--seq", "40", "--head-dim", "16", "--block", "16x16")


@pytest.fixture(scope="module")
def bugged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Standard output of one run with a mistake, and its page."""
    page = tmp_path_factory.mktemp("page") / "trace.html"
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setenv("COLUMNS", "80")
        assert run([*SMALL, "--bug", "missing-rescale", "--steps", "2", "--html", str(page)]) == 0
    return {"out": out.getvalue(), "page": page.read_text(encoding="utf-8")}


def data_of(page: str) -> dict:
    return json.loads(re.findall(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)[0])


@needs_nvrtc
def test_the_table_fits_80_columns_and_shows_the_diff(bugged: dict[str, str]) -> None:
    out = bugged["out"]
    # Lines of code are as long as they are.
    assert max(len(line) for line in out.splitlines() if line[:1] not in ("+", "-", " ")) <= 80
    assert "-const float factor = ex2_approx((old_max[half] - new_max) * scale_log2);" in out
    assert "there is nothing to rescale" in " ".join(out.split())
    # The loops: flash1 takes the columns of S one after the other, the others its rows.
    assert re.search(r"(?m)^1 2 3 +1 4 7 +1 2 3\s*$", out)
    assert re.search(r"(?m)^flash2, missing-rescale +[\d,]+ +[\d,]+ .* wrong_result\s*$", out)
    assert re.search(r"(?m)^flash2 +[\d,]+ +[\d,]+ .* ok\s*$", out)


@needs_nvrtc
def test_the_page_needs_nothing_but_itself(bugged: dict[str, str]) -> None:
    page = bugged["page"]
    assert "http:" not in page and "https:" not in page
    tags: list[tuple[str, dict]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append((tag, dict(attributes)))  # type: ignore[method-assign]
    parser.feed(page)
    assert not [a for tag, a in tags if "src" in a or "href" in a or tag in ("link", "iframe", "img")]
    assert not re.search("__[A-Z]+__", page)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", page)


@needs_nvrtc
def test_the_page_holds_the_steps_and_the_values(bugged: dict[str, str]) -> None:
    data = data_of(bugged["page"])
    assert (data["rows"], data["keys"], data["tiles"], data["dim"]) == (40, 40, 3, 16)
    assert [run["name"] for run in data["right"]] == ["standard", "flash1", "flash2"]
    assert [run and run["passed"] for run in data["wrong"]] == [None, False, False]
    assert data["bug"]["diffs"][0] == [] and data["bug"]["diffs"][2]
    assert all(line["equal"] and line["passed"] for line in data["checks"])
    for right, check in zip(data["right"], data["checks"], strict=True):
        moved = sum(touch[2] for step in right["steps"] for touch in step["touches"])
        assert check["cells"][2] == f"{moved:,}"
        state = np.frombuffer(base64.b64decode(right["m"]), "<f4").reshape(40, 3)
        scores = np.frombuffer(base64.b64decode(right["S"]), np.uint8)
        assert np.isfinite(state[:, 2]).all()
        # Every score was computed and none is masked; 1 and 255 are the ends of the range.
        assert (scores.size, scores.min(), scores.max()) == (1600, 1, 255)
        low, high = right["scoreRange"]
        assert state[:, 2].max() == pytest.approx(high, rel=1e-3)  # standard attention's S is stored in fp16
        assert low < 0 < high


@needs_nvrtc
def test_json_and_csv(cli: Callable) -> None:
    ran = cli(*SMALL, "--format", "json", "--row", "39")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert (document["schema"], document["passed"], document["bug"], document["row"]) == (1, True, None, 39)
    assert (document["seq_q"], document["causal"], document["block_m"]) == (40, False, 16)
    flash2 = document["runs"][2]
    assert [state["keys"] for state in flash2["row_states"]] == [[0, 16], [16, 32], [32, 40]]
    assert flash2["row_states"][-1]["o"] == pytest.approx(document["exact"], abs=2e-3)
    assert len(flash2["row_errors"]) == 40
    assert flash2["equal"] is True

    ran = cli(*SMALL, "--format", "csv", "--impl", "flash2")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert {row["impl"] for row in rows} == {"flash2"}
    assert int(rows[-1]["so_far_bytes"]) == sum(part["counted_bytes"] for part in flash2["traffic"])


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without NVRTC."""
    monkeypatch.setenv(nvrtc.HIDE, "1")
    nvrtc.load.cache_clear()
    yield
    nvrtc.load.cache_clear()


@pytest.mark.usefixtures("hidden")
def test_without_a_compiler_the_default_runs_and_others_are_refused(cli: Callable) -> None:
    ran = cli("trace", "--steps", "0", "--impl", "flash2")
    assert ran.code == 0, ran.err
    assert re.search(r"(?m)^flash2 +328,704 +328,704 .* ok\s*$", ran.out)
    ran = cli("trace", "--head-dim", "32")
    assert (ran.code, ran.out) == (3, "")
    assert "standard_scores for sm_80 with" in ran.err
    assert "is not among the kernels that come compiled." in ran.err


def test_a_page_that_cannot_be_written_is_one_sentence(cli: Callable, tmp_path: Path) -> None:
    for place, reason in ((tmp_path / "missing" / "x.html", "there is no such folder"), (tmp_path, "it is a folder")):
        ran = cli("trace", "--html", str(place))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == f"Error: --html: {str(place)!r} can't be written: {reason}.\n"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--bug missing-scal", "There is no bug 'missing-scal' to show."),
        ("--seq 2k", "A trace keeps every step of a small case: at most 1024 queries and keys, not 2048."),
        ("--seq 1..4", "--seq: '1..4'"),
        ("--seq 0", "--seq: '0' is too small; the least is 1."),
        ("--head-dim 20", "head_dim must be a multiple of 8 up to 256, not 20."),
        ("--dtype fp32", "Traced kernels are those for fp16 and bf16, not fp32."),
        ("--dtype fp16,bf16", "A trace has one data type, not fp16,bf16."),
        ("--dtype fp8", "--dtype: 'fp8' is none of fp16, bf16, fp32."),
        ("--block 64", "--block: '64' is not a tile"),
        ("--block 20x64", "block_m must be a multiple of 16 from 16 to 256, not 20."),
        ("--impl flash4", "Unknown algorithm 'flash4'"),
        ("--impl numpy-flash", "Unknown algorithm 'numpy-flash'"),
        ("--row 256", "--row: O has rows 0 to 255, not 256."),
        ("--row -1", "--row: O has rows 0 to 255, not -1."),
        ("--bug block-mask --no-causal", "block-mask is a mistake in the causal mask, so it needs --causal."),
        ("--steps -1", "--steps"),
        ("--bug missing-rescale --impl standard",
         "--bug missing-rescale: standard can't have this mistake. Standard attention's softmax sees the whole row"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(cli: Callable, line: str, sentence: str) -> None:
    ran = cli("trace", *line.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Error: ")
    assert sentence in ran.err
    assert len(ran.err.splitlines()) <= 2
