"""``--impl FILE.toml``: the example of docs/user-kernels.md through every command, and files that are off."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fa_bench.algorithms import user_file
from fa_bench.algorithms.base import ELEMENT_BYTES
from fa_bench.algorithms.user import load
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import compile_kernel, nvrtc_available

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = str(EXAMPLES / "row_attention.toml")

needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=f"no compiler: {nvrtc_available()}")


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., str]:
    """A copy of the example called ``name``, with one text in its source or its description replaced by another."""

    def make(old: str = "", new: str = "", name: str = "mine") -> str:
        texts = {suffix: (EXAMPLES / f"row_attention{suffix}").read_text() for suffix in (".cu", ".toml")}
        assert not old or sum(text.count(old) for text in texts.values()) == 1
        texts[".toml"] = texts[".toml"].replace('source = "row_attention.cu"', f'source = "{name}.cu"')
        for suffix, text in texts.items():
            (tmp_path / f"{name}{suffix}").write_text(text.replace(old, new) if old else text)
        return f"{name}.toml"

    return make


def records(folder: str) -> list[dict[str, str]]:
    with Path(folder, "records.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- what works ------------------------------------------------------------------------------------------------------


@needs_nvrtc
def test_io_model_shows_what_was_counted_and_no_prediction(cli: Callable) -> None:
    ran = cli("io-model", "--impl", f"standard,{EXAMPLE}", "--seq", "64", "--format", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["equal"] is True
    standard, mine = document["cases"]
    assert (mine["impl"], mine["source"], mine["status"]) == ("row_attention", "emulated", "ok")
    assert (mine["read_bytes"], mine["total_bytes"], mine["standard_ratio"]) == (None, None, None)
    assert standard["standard_ratio"] == 1
    # One CTA of two warps. Each of the 64 columns of Q is one instruction of a warp, whose 32 lanes have a row and so a
    # sector each; O likewise. K and V: 64 x 64 halves in instructions of 32 neighbours, which are two sectors.
    assert {(line["tensor"], line["op"]): line["counted_bytes"] for line in mine["traffic"]} == {
        ("Q", "read"): 2 * 64 * 32 * 32,
        ("K", "read"): 64 * 64 // 32 * 2 * 32,
        ("V", "read"): 64 * 64 // 32 * 2 * 32,
        ("O", "write"): 2 * 64 * 32 * 32,
        ("LSE", "write"): 64 * 4,
    }
    assert {(line["predicted_bytes"], line["difference_bytes"]) for line in mine["traffic"]} == {(None, None)}


@needs_nvrtc
def test_io_model_as_a_table(cli: Callable) -> None:
    ran = cli("io-model", "--impl", f"standard,{EXAMPLE}", "--seq", "64", "--quiet")
    assert ran.code == 0
    lines = [line.rstrip() for line in ran.out.splitlines()]
    assert "row_attention  Q       read             -     131,072           -" in lines
    assert "Counted, 64 fp16 D=64 full bhsd B=1 H=1" in lines
    # 131,072 + 2 x 8,192 read, 131,072 + 256 written: 278,784 bytes; standard moves 67,584.
    assert "row_attention 64x64/1  144 KiB  128 KiB  272 KiB    0.242×" in lines
    assert max(map(len, lines)) <= 80


def test_prediction_alone_says_that_there_is_none(cli: Callable) -> None:
    ran = cli("io-model", "--impl", EXAMPLE, "--seq", "64", "--no-measure")
    assert ran.code == 0
    assert "It has no traffic model: its bytes can be counted, not predicted." in ran.out
    ran = cli("io-model", "--impl", EXAMPLE, "--seq", "64", "--explain")
    assert "row_attention has no traffic model" in ran.out


@needs_nvrtc
def test_check_holds_it_against_fp64(cli: Callable) -> None:
    ran = cli(
        *("check", "--impl", EXAMPLE, "--seq", "37x61,61x37", "--head-dim", "32,40", "--heads", "4", "--kv-heads"),
        *("2", "--layout", "bshd", "--format", "json"),
    )
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["passed"] is True
    # 2 shapes, 3 types, causal and not; D = 40 is none of the kernel's.
    by_status = [record["status"] for record in document["records"]]
    assert (by_status.count("ok"), by_status.count("unsupported"), len(by_status)) == (12, 12, 24)
    reasons = {record["status_reason"] for record in document["records"] if record["status"] != "ok"}
    assert reasons == {"row_attention takes head_dim 32, 64 or 128, not 40."}


@needs_nvrtc
def test_a_sweep_leaves_the_models_columns_empty(cli: Callable, copied: Callable[..., str]) -> None:
    name = copied()
    ran = cli("sweep", "--device", "emulator", "--impl", f"flash2,{name}", "--seq", "64", "--out", "run")
    assert ran.code == 0, ran.err
    assert ["64", "mine", "64x64/1", "-", "-", "-", "272", "KiB"] in [line.split()[:8] for line in ran.out.splitlines()]
    assert "Counted, since there is no model: mine." in ran.out
    flash2, mine = records("run")
    assert (mine["impl"], mine["impl_version"], mine["status"]) == ("mine", load(Path(name)).content, "ok")
    assert (mine["global_read_bytes_emulated"], mine["global_write_bytes_emulated"]) == ("147456", "131328")
    assert (mine["block_m"], mine["num_warps"], mine["smem_bytes"]) == ("64", "2", "16384")
    for column in ("global_read_bytes_model", "dram_read_bytes_model", "flops_executed", "roofline_ms"):
        assert mine[column] == ""
        assert flash2[column] != ""
    # 16 KiB and 1 KiB of the driver's of 164 KiB: nine CTAs; registers may allow fewer.
    assert 1 <= int(mine["blocks_per_sm"]) <= 9


@needs_nvrtc
def test_an_edited_kernel_is_another_case(cli: Callable, copied: Callable[..., str]) -> None:
    line = ["sweep", "--device", "emulator", "--impl", copied(), "--seq", "32", "--out", "run"]
    assert cli(*line).code == 0
    assert "1 of them from before" in cli(*line, "--resume").err
    copied("// -infinity", "// minus infinity")
    assert cli(*line, "--resume").code == 0
    first, second = records("run")
    assert first["impl"] == second["impl"]
    assert first["case_id"] != second["case_id"]
    assert first["impl_version"] != second["impl_version"]


@needs_nvrtc
def test_ptx_is_a_source_too(cli: Callable, tmp_path: Path) -> None:
    example = load(Path(EXAMPLE))
    case = Case("row_attention", AttentionShape(1, 1, 1, 64, 64, 64), tile=Tile(64, 64, 1, 2))
    kernel = compile_kernel(example.program(case).launches[0].kernel, "sm_80")
    (tmp_path / "rows.ptx").write_text(kernel.ptx)
    text = Path(EXAMPLE).read_text().replace("row_attention.cu", "rows.ptx")
    (tmp_path / "rows.toml").write_text("\n".join(line for line in text.splitlines() if not line.startswith("defines")))
    line = ("sweep", "--device", "emulator", "--impl", f"{EXAMPLE},rows.toml", "--seq", "64", "--out", "run", "--quiet")
    assert cli(*line).code == 0
    compiled, given = records("run")
    for column in ("status", "global_read_bytes_emulated", "global_write_bytes_emulated", "max_abs_err"):
        assert given[column] == compiled[column] != ""
    for column in ("registers", "spill_bytes", "smem_bytes", "blocks_per_sm", "nvrtc_version", "compile_ms"):
        assert given[column] == ""
        assert compiled[column] != ""
    ran = cli("kernels", "--impl", "rows.toml")
    assert ran.code == 0
    assert re.search(r"row_attention +64x64/1 +64( +-){5}", ran.out)


@needs_nvrtc
def test_kernels_shows_its_resources(cli: Callable) -> None:
    ran = cli("kernels", "--impl", EXAMPLE, "--head-dim", "64,128", "--format", "json")
    assert ran.code == 0
    rows = json.loads(ran.out)
    assert [(row["head_dim"], row["threads"], row["smem_bytes"]) for row in rows] == [
        (64, 64, 2 * 64 * 64 * 2),
        (128, 64, 2 * 32 * 128 * 2),
    ]
    assert all(row["registers"] > 0 for row in rows)


def test_the_document_says_what_there_is() -> None:
    text = (EXAMPLES.parent / "docs" / "user-kernels.md").read_text()
    toml = Path(EXAMPLE).read_text()
    assert f"```toml\n{toml[toml.index('summary') :]}```" in text
    words = set(re.findall(r"`(\w+)`", text.partition("## The file")[2]))
    words |= {name.replace("q_", f"{tensor}_") for name in words if name.startswith("q_") for tensor in "kvo"}
    for known in (user_file.FIELDS, user_file.TILE_FIELDS, user_file.C_TYPES, user_file._RIGHT, ELEMENT_BYTES):
        assert {name for name in known if name not in words} <= {"supports", "tile", "workspaces", "kernels"}
    for table in ("[supports]", "[tile]", "[workspaces.NAME]", "[[kernels]]"):
        assert f"`{table}`" in text


# --- what does not ---------------------------------------------------------------------------------------------------


@needs_nvrtc
def test_a_wrong_kernel_is_a_wrong_result(cli: Callable, copied: Callable[..., str]) -> None:
    name = copied("? 1.f / sum", "? 2.f / sum")
    ran = cli("sweep", "--device", "emulator", "--impl", name, "--seq", "32", "--out", "run")
    assert ran.code == 1
    assert "mine 64x64/1, 32 fp16 D=64 full bhsd B=1 H=1: wrong_result." in ran.err
    assert cli("check", "--impl", name, "--seq", "32", "--head-dim", "64", "--dtype", "fp16").code == 1


@needs_nvrtc
def test_a_kernel_that_does_not_compile_is_a_row_with_the_compilers_line(
    cli: Callable, copied: Callable[..., str]
) -> None:
    name = copied("float highest = -__int", "flot highest = -__int")
    ran = cli("sweep", "--device", "emulator", "--impl", name, "--seq", "32", "--out", "run")
    assert ran.code == 1
    (row,) = records("run")
    assert row["status"] == "error"
    assert 'mine.cu(' in row["status_reason"] and 'identifier "flot" is undefined' in row["status_reason"]  # fmt: skip


@needs_nvrtc
def test_parameters_that_the_kernel_does_not_have_are_a_row_with_the_reason(
    cli: Callable, copied: Callable[..., str]
) -> None:
    for old, new, said in (
        ('"i32 seq_kv", "f32 scale"', '"i32 seq_kv"', "Kernel row_attention takes 16 arguments, not 15: correct args"),
        ('"i32 seq_kv", "f32 scale"', '"i64 seq_kv", "f32 scale"', "has 4 bytes, but i64 has 8: correct args"),
        ('entry = "row_attention"', 'entry = "rows"', "no kernel called rows"),
    ):
        assert cli("sweep", "--device", "emulator", "--impl", copied(old, new), "--seq", "32", "--out", said).code == 1
        (row,) = records(said)
        assert row["status"] == "error"
        assert said in row["status_reason"]
        assert "Error:" not in row["status_reason"]


@pytest.mark.parametrize(
    ("line", "said", "step"),
    [
        ("sweep --impl absent.toml", "There is no file 'absent.toml'.", "docs/user-kernels.md"),
        ("sweep --impl broken.toml", "'broken.toml' is not valid TOML", ""),
        ("sweep --impl unknown.toml", "unknown.toml: there is no key kernels[0].gird.", "'grid'"),
        ("io-model --impl unknown.toml --seq 64", "unknown.toml: there is no key kernels[0].gird.", "'grid'"),
        ("check --impl unknown.toml", "unknown.toml: there is no key kernels[0].gird.", "'grid'"),
        ("kernels --impl unknown.toml", "unknown.toml: there is no key kernels[0].gird.", "'grid'"),
        ("sweep --impl fraction.toml", "fraction.toml: kernels[0].grid[0] must be a whole number", "ceil_div"),
        ("sweep --impl mine.cu", "'mine.cu' is a kernel's source", "docs/user-kernels.md"),
        ("sweep --impl flash1.toml", "'flash1.toml' would be called flash1, which is one of ours.", "another name"),
        ("sweep --impl numpy-flash.toml", "would be called numpy-flash, which is taken.", "another name"),
        ("sweep --impl auto.toml", "would be called auto, which is taken.", "another name"),
        ("sweep --impl mine.toml,sub/mine.toml", "'mine.toml' and 'sub/mine.toml' would both be called mine.", ""),
        ("sweep --impl mine.toml --device host", "mine does not run on the device asked for.", "numpy-flash"),
        ("kernels --impl numpy-flash", "numpy-flash is no CUDA kernel of ours.", "standard, flash1, flash2"),
        ("io-model --impl numpy-flash", "numpy-flash is no CUDA kernel of ours.", "standard, flash1, flash2"),
        ("sweep --impl mine.toml,flahs2", "There is no implementation 'flahs2'.", "'flash2'"),
    ],
)  # fmt: skip
def test_bad_files_are_one_sentence_and_exit_code_2(
    line: str, said: str, step: str, cli: Callable, copied: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("mine", "sub/mine", "flash1", "numpy-flash", "auto"):
        copied(name=name)
        path = tmp_path / f"{name}.toml"
        path.write_text(path.read_text().replace(f'"{name}.cu"', f'"{Path(name).name}.cu"'))
    (tmp_path / "broken.toml").write_text("[")
    copied("\ngrid =", "\ngird =", "unknown")
    copied("ceil_div(seq_q, block_m)", "seq_q / 63", "fraction")
    before = sorted(tmp_path.rglob("*"))
    if "--device" not in line and line.startswith("sweep"):
        line += " --device emulator"
    ran = cli(*line.split())
    assert (ran.code, ran.out) == (2, "")
    message, *hint = ran.err.splitlines()
    assert message.startswith("Error: ") and message.endswith(".")
    assert said in message
    assert step in "".join(hint)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_preset_may_name_a_file(cli: Callable, copied: Callable[..., str], fakes: Any, emulator: Any) -> None:
    copied()
    Path("preset.toml").write_text('seq = 64\nimpl = ["flash2", "mine.toml"]\n')
    fakes(emulator(impls=("flash2", "mine")))
    ran = cli("sweep", "--config", "preset.toml", "--dry-run", "--format", "json")
    assert ran.code == 0, ran.err
    assert [cell["impl"] for cell in json.loads(ran.out)] == ["flash2", "mine"]
