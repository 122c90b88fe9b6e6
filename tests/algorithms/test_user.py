"""A user's kernel as an Algorithm: its expressions in numbers, what it refuses, what identifies it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import Scalar
from fa_bench.algorithms.tensors import qkvo
from fa_bench.algorithms.user import UserAlgorithm, case_fields, load
from fa_bench.algorithms.user_file import FIELDS
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.errors import UsageError
from fa_bench.model import gpus
from fa_bench.sweep.plan import SweepRequest, plan
from fa_bench.sweep.predict import predict

GPU = gpus.get("a100-sxm-80")
#: 2 batches, 4 query heads on 2 K/V heads, 100 queries, 300 keys, D = 40 (padded to 64).
SHAPE = AttentionShape(2, 4, 2, 100, 300, 40)
TEXT = """
source = "k.cu"
[supports]
dtypes = ["fp16", "fp32"]
head_dims = [40, 64]
layouts = ["bhsd", "bshd"]
causal = [false, true]
requires = ["seq_q <= seq_kv"]
[tile]
block_m = "64 if fp16 else 32"
block_n = 32
stages = 2
num_warps = "block_m // 16"
[workspaces.P]
dtype = "i32"
shape = ["slices", "seq_q + 1", 3]
[[kernels]]
entry = "first"
defines = { BLOCK_M = "block_m", SCALE = "scale * 2", CAUSAL = "causal" }
grid = ["ceil_div(seq_q, block_m)", "slices"]
block = ["32 * num_warps"]
smem_bytes = "2 * block_n * padded_head_dim * itemsize"
args = ["Q", "K", "P", "i32 seq_q", "f32 scale", "i64 q_row_stride", "bool causal", "u32 group"]
[[kernels]]
entry = "second"
grid = [1, 2, "heads_kv"]
block = [32]
args = ["P", "V", "O", "LSE"]
"""


@pytest.fixture
def user(tmp_path: Path) -> Callable[..., UserAlgorithm]:
    """The algorithm of `TEXT` with one text in it replaced by another."""
    (tmp_path / "k.cu").write_text("// nothing\n")

    def make(old: str = "", new: str = "") -> UserAlgorithm:
        assert not old or TEXT.count(old) == 1
        path = tmp_path / "mine.toml"
        path.write_text(TEXT.replace(old, new) if old else TEXT)
        return load(path)

    return make


def tiled(algorithm: UserAlgorithm, **changes: object) -> Case:
    case = replace(Case("mine", SHAPE), **changes)
    return replace(case, tile=algorithm.auto_tile(case, GPU))


def test_the_fields_are_those_that_a_file_may_use() -> None:
    case = Case("mine", SHAPE, layout="bshd")
    fields = case_fields(case)
    assert tuple(fields) == FIELDS
    assert (fields["group"], fields["slices"], fields["padded_head_dim"], fields["itemsize"]) == (2, 8, 64, 2)
    assert (fields["fp16"], fields["bf16"], fields["bhsd"], fields["bshd"], fields["causal"]) == (1, 0, 0, 1, 0)
    assert fields["scale"] == 40**-0.5
    # bshd: a row of K is 2 heads of 40 columns, a head 40 columns, a batch 300 rows.
    assert [fields[f"k_{axis}_stride"] for axis in ("batch", "head", "row")] == [300 * 80, 40, 80]


def test_the_default_tile_follows_the_case_and_the_warps_the_tile(user: Callable[..., UserAlgorithm]) -> None:
    mine = user()
    assert mine.auto_tile(Case("mine", SHAPE), GPU) == Tile(64, 32, 2, 4)
    assert mine.auto_tile(Case("mine", SHAPE, "fp32"), GPU) == Tile(32, 32, 2, 2)
    assert mine.resolve(Case("mine", SHAPE), Tile(128, 64, 1)) == Tile(128, 64, 1, 8)
    assert mine.resolve(Case("mine", SHAPE), Tile(128, 64, 1, 2)) == Tile(128, 64, 1, 2)


def test_the_program_is_what_the_file_says_in_numbers(user: Callable[..., UserAlgorithm]) -> None:
    mine = user()
    case = tiled(mine)
    program = mine.program(case)
    assert program.buffers[:4] == qkvo(case)
    lse, p = program.buffers[4:]
    assert (lse.name, lse.shape, lse.role) == ("LSE", (2, 4, 100), "output")
    # 8 slices x 101 x 3 of four bytes
    assert (p.name, p.shape, p.strides, p.role, p.nbytes) == ("P", (8, 101, 3), (303, 3, 1), "workspace", 8 * 303 * 4)
    first, second = program.launches
    assert first.kernel.source == str(mine.file.path.parent.resolve() / "k.cu")
    assert first.kernel.entry == "first"
    assert dict(first.kernel.defines) == {"BLOCK_M": "64", "SCALE": f"{2 * 40**-0.5!r}f", "CAUSAL": "0"}
    assert (first.grid, first.block, first.smem_bytes) == ((2, 8, 1), (128, 1, 1), 2 * 32 * 64 * 2)
    assert first.args == (
        *("Q", "K", "P"),
        *(Scalar("i32", 100), Scalar("f32", 40**-0.5), Scalar("i64", 40), Scalar("bool", 0), Scalar("u32", 2)),
    )
    assert (second.grid, second.block, second.smem_bytes, second.ctas_per_slice) == ((1, 2, 2), (32, 1, 1), 0, 0)
    assert mine.smem_bytes(case) == 8192


def test_lse_is_a_buffer_only_if_a_kernel_takes_it(user: Callable[..., UserAlgorithm]) -> None:
    mine = user(', "LSE"]', "]")
    assert [buffer.name for buffer in mine.program(tiled(mine)).buffers] == ["Q", "K", "V", "O", "P"]


def test_there_is_no_model(user: Callable[..., UserAlgorithm]) -> None:
    mine = user()
    algorithms.add(mine)
    case = tiled(mine)
    assert mine.traffic(case) is None and mine.work(case) is None
    assert "has no traffic model" in mine.explain(case)
    prediction = predict(case, GPU)
    assert (prediction.impl_version, prediction.traffic, prediction.roofline_ms) == (mine.content, {}, None)
    # Compulsory bytes are the shape's: Q of 8 slices, K and V of 4, in halves.
    assert prediction.compulsory_read_bytes == (8 * 100 + 2 * 4 * 300) * 40 * 2


SQUARE = AttentionShape(1, 1, 1, 100, 100, 64)


@pytest.mark.parametrize(
    ("old", "new", "changes", "reason"),
    [
        ("", "", {}, None),
        ("", "", {"dtype": "bf16"}, "mine takes dtype fp16 or fp32, not bf16."),
        ("", "", {"shape": replace(SHAPE, head_dim=128)}, "mine takes head_dim 40 or 64, not 128."),
        ("head_dims = [40, 64]\n", "", {"shape": replace(SHAPE, head_dim=128)}, None),
        (', "bshd"]', "]", {"layout": "bshd"}, "mine takes layout bhsd, not bshd."),
        ("causal = [false, true]\n", "", {"shape": replace(SHAPE, causal=True)}, "mine has no mask."),
        ("[false, true]", "[true]", {}, "mine is for causal attention only."),
        ("", "", {"shape": replace(SHAPE, seq_q=301)}, "mine requires seq_q <= seq_kv."),
        ("[false, true]", "[false]\ncompute_capability = 8.0", {}, None),
        ("[false, true]", "[false]\ncompute_capability = 9", {}, "mine needs compute capability 9; "),
        ('"slices"]\nblock', '"70000 * slices"]\nblock', {}, "mine: kernels[0].grid is 2 x 560000 x 1; a grid holds"),
        ('["ceil_div(seq_q, block_m)"', '["2147483648"', {}, "mine: kernels[0].grid is 2147483648 x 8 x 1;"),
        ('["32 * num_warps"]', "[33, 32]", {}, "mine: kernels[0].block is 33 x 32 x 1; a CTA holds 1024 threads"),
        ('["32 * num_warps"]', "[1, 1, 65]", {}, "mine: kernels[0].block is 1 x 1 x 65; a CTA holds 1024 threads, 64"),
        ('"2 * block_n *', '"64 * block_n *', {}, "mine: kernels[0].smem_bytes is 256 KiB; NVIDIA A100"),
        ('"i32 seq_q"', '"i32 seq_q * 30000000"', {}, "mine: kernels[0].args[3] is 3000000000, which no i32 holds."),
        ('"u32 group"', '"u32 0 - group"', {}, "mine: kernels[0].args[7] is -2, which no u32 holds."),
        ('"bool causal"', '"bool seq_q"', {}, "mine: kernels[0].args[6] is 100, which no bool holds."),
    ],
)
def test_a_case_that_it_cannot_run_has_its_reason(
    old: str, new: str, changes: dict[str, object], reason: str | None, user: Callable[..., UserAlgorithm]
) -> None:
    mine = user(old, new)
    found = mine.unsupported(tiled(mine, **changes), GPU)
    assert found == reason or (found is not None and reason is not None and found.startswith(reason))
    assert found is None or found.endswith(".")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ceil_div(seq_q, block_m)", "seq_q / block_m", "kernels[0].grid[0] must be a whole number, but 'seq_q /"),
        ("ceil_div(seq_q, block_m)", "seq_q // 101", "kernels[0].grid[0] must be at least 1, but 'seq_q // 101' is 0"),
        ("ceil_div(seq_q, block_m)", "seq_q // (head_dim - 40)", "kernels[0].grid[0] divides by zero in 'seq_q //"),
        ("seq_q + 1", "seq_q - 100", "workspaces.P.shape[1] must be at least 1"),
        ('"2 * block_n', '"0 - block_n', "kernels[0].smem_bytes must be at least 0"),
        ('"i32 seq_q"', '"i32 scale"', "kernels[0].args[3] must be a whole number, but 'scale' is 0.158"),
        ("scale * 2", "scale / (fp16 - 1)", "kernels[0].defines.SCALE divides by zero"),
        ('"seq_q <= seq_kv"', '"seq_q // causal"', "supports.requires[0] divides by zero"),
    ],
)  # fmt: skip
def test_an_expression_without_a_fitting_value_is_the_files_fault(
    old: str, new: str, said: str, user: Callable[..., UserAlgorithm]
) -> None:
    mine = user(old, new)
    with pytest.raises(UsageError) as refused:
        mine.unsupported(tiled(mine), GPU)
    assert refused.value.message.startswith(f"{mine.file.path}: {said}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("block_n = 32", "block_n = 24", "tile: block_n must be a multiple of 16 from 16 to 256, not 24."),
        ("stages = 2", "stages = 3", "tile: stages must be 1 or 2, not 3."),
        ("stages = 2", "stages = 1.5", "tile.stages must be a whole number, but '1.5' is 1.5."),
        ("block_m // 16", "3", "tile: num_warps must be 1, 2, 4 or 8, not 3."),
    ],
)
def test_a_default_tile_that_is_none_is_the_files_fault(
    old: str, new: str, said: str, user: Callable[..., UserAlgorithm]
) -> None:
    mine = user(old, new)
    with pytest.raises(UsageError) as refused:
        tiled(mine)
    assert refused.value.message == f"{mine.file.path}: {said}"


# --- identity and registry -------------------------------------------------------------------------------------------


def test_the_name_is_the_files(tmp_path: Path, user: Callable[..., UserAlgorithm]) -> None:
    assert user().name == "mine"
    (tmp_path / "my kernel.toml").write_text(TEXT)
    with pytest.raises(UsageError, match="names an implementation 'my kernel'; a name has letters"):
        load(tmp_path / "my kernel.toml")


def test_added_ones_are_found_and_ours_stay(user: Callable[..., UserAlgorithm]) -> None:
    ours = algorithms.names()
    assert algorithms.find("mine") is None
    mine = user()
    algorithms.add(mine)
    assert algorithms.get("mine") is mine and algorithms.find("mine") is mine
    assert algorithms.added() == ("mine",)
    assert algorithms.names() == ours
    changed = user("stages = 2", "stages = 1")
    algorithms.add(changed)
    assert algorithms.get("mine") is changed
    assert (algorithms.content_of("mine"), algorithms.content_of("flash2")) == (changed.content, "")


def test_a_name_of_ours_is_taken(tmp_path: Path, user: Callable[..., UserAlgorithm]) -> None:
    user()
    (tmp_path / "flash2.toml").write_text(TEXT)
    with pytest.raises(UsageError, match="would be called flash2, which is one of ours"):
        algorithms.add(load(tmp_path / "flash2.toml"))


class Planning:
    """A backend that offers what there is."""

    name = "emulator"

    def implementations(self) -> tuple[str, ...]:
        return (*algorithms.names(), *algorithms.added())

    def free_memory_bytes(self) -> None:
        return None

    def required_bytes(self, case: Case) -> int:
        return algorithms.get(case.impl).program(case).nbytes


def planned(*impls: str) -> list[Case]:
    request = SweepRequest(seqs=(128,), impls=impls)
    return [cell.case for cell in plan(request, [Planning()], GPU).cases]


def test_the_identity_of_a_case_holds_the_files_content(user: Callable[..., UserAlgorithm]) -> None:
    mine = user()
    algorithms.add(mine)
    (first,) = planned("mine")
    assert (first.content, first.tile) == (mine.content, Tile(64, 32, 2, 4))
    (mine.file.path.parent / "k.cu").write_text("// changed\n")
    algorithms.add(user())
    (second,) = planned("mine")
    assert second.tile == first.tile
    assert second.case_id != first.case_id
    # Those of ours don't have one: their identity is what it was.
    (flash2,) = planned("flash2")
    assert (flash2.content, flash2.case_id) == ("", replace(flash2, content="").case_id)


def test_without_a_tile_it_is_planned_once_and_refused_with_its_reason(
    tmp_path: Path, user: Callable[..., UserAlgorithm]
) -> None:
    start, _, rest = TEXT.partition("[tile]")
    kernels = rest.partition("[workspaces.P]")
    text = start + kernels[1] + kernels[2]
    for name, value in (("block_m", "64"), ("block_n", "32"), ("num_warps", "4")):
        text = text.replace(name, value)
    user()
    (tmp_path / "plain.toml").write_text(text)
    plain = load(tmp_path / "plain.toml")
    assert not plain.uses_tile
    algorithms.add(plain)
    request = SweepRequest(seqs=(128,), head_dims=(64, 128), blocks=((64, 64), (32, 32)), impls=("plain",))
    cells = plan(request, [Planning()], GPU).cases
    assert [(cell.case.tile, cell.status, cell.reason) for cell in cells] == [
        (None, "run", ""),
        (None, "unsupported", "plain takes head_dim 40 or 64, not 128."),
    ]
    assert plain.program(cells[0].case).launches[0].grid == (2, 1, 1)
