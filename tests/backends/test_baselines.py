"""The registry of baselines: what is here, what each can do, how much memory it takes; nothing is imported for that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fa_bench.backends import baselines
from fa_bench.backends.base import RunResult
from fa_bench.backends.baselines import BASELINES, Library, find
from fa_bench.backends.host import HostBackend
from fa_bench.cases import AttentionShape, Case, DType, Layout
from fa_bench.errors import Unsupported
from fa_bench.measure.stopping import StoppingRule
from fa_bench.model.gpu import Gpu

ALL = baselines.names()


def refusal(
    impl: str, *shape: int, causal: bool = False, dtype: DType = "fp16", sm: str = "sm_90", **more: Layout
) -> str:
    """Why a baseline does not run on a GPU; empty if nothing is known against it."""
    baseline = find(impl)
    assert baseline is not None
    return baseline.unsupported(Case(impl, AttentionShape(*shape, causal=causal), dtype, **more), "cuda", sm) or ""


def installed(folder: Path, name: str, version: str) -> None:
    """An installation's metadata, written by hand: what ``importlib.metadata`` reads."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_every_name_is_there_once_and_leads_to_a_factory() -> None:
    assert len(set(ALL)) == len(ALL) == len(BASELINES)
    assert ALL == (
        "torch-math", "torch-flash", "torch-efficient", "torch-cudnn", "torch-flash-blocked",
        "flash-attn-2", "flash-attn-3", "flashinfer", "xformers", "triton-flash",
    )  # fmt: skip
    for baseline in BASELINES:
        module, _, factory = baseline.factory.partition(":")
        source = Path(baselines.__file__).parent / f"{module.rpartition('.')[2]}.py"
        assert f"\ndef {factory}(case: Case" in source.read_text(encoding="utf-8")
    assert find("flash2") is None and find("numpy-flash") is None


def test_the_document_has_a_row_for_each_with_what_installs_it() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert tuple(rows) == ALL
    for baseline in BASELINES:
        types = [dtype for dtype in ("fp16", "bf16", "fp32") if dtype in rows[baseline.name].split("|")[4]]
        assert set(types) >= set(baseline.dtypes)
        if baseline.library.install.startswith("pip") and baseline.library is not baselines.TORCH:
            assert f"`{baseline.library.install}`" in rows[baseline.name]


def test_looking_for_libraries_imports_none_of_them() -> None:
    """A library's import takes seconds, may print, and may fail; a listing must not depend on that."""
    code = (
        "import sys; from fa_bench.backends import baselines as b; b.usable('cuda'); b.usable('host');"
        "[(x.missing(), x.library.version()) for x in b.BASELINES];"
        "print({'torch', 'triton', 'flash_attn', 'xformers', 'flashinfer', 'numpy'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_baseline_needs_its_library_and_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"torch", "flash_attn"}
    monkeypatch.setattr(Library, "is_here", lambda self: self.module in modules)
    assert baselines.usable("host") == ("torch-math", "torch-flash", "torch-flash-blocked")
    assert baselines.usable("cuda") == (*ALL[:5], "flash-attn-2")
    assert [library.name for library in find("xformers").missing()] == ["xformers"]  # type: ignore[union-attr]
    modules.remove("torch")
    assert baselines.usable("cuda") == ()
    assert [library.name for library in find("flash-attn-2").missing()] == ["torch"]  # type: ignore[union-attr]


def test_a_stand_in_without_a_spec_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("flash_attn")
    module.__spec__ = None
    monkeypatch.setitem(sys.modules, "flash_attn", module)  # find_spec raises ValueError for it
    assert not baselines.FLASH_ATTN.is_here()


def test_a_version_is_that_of_the_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "flash-attn", "2.8.3")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert baselines.FLASH_ATTN.version() == "flash-attn 2.8.3"
    assert baselines.FLASH_ATTN_3.version() == "flash-attn-3 of unknown version"


def test_two_installations_of_one_library_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them is imported depends on the path; a row must not claim one of the two."""
    installed(tmp_path / "system", "flash-attn", "2.7.0")
    installed(tmp_path / "user", "flash_attn", "2.8.3")
    for folder in ("system", "user"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    assert baselines.FLASH_ATTN.version() == "flash-attn 2.7.0 and 2.8.3"


def test_a_library_that_cannot_be_imported_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual fault of a wheel that was built for another PyTorch."""
    installed(tmp_path, "flash-attn", "2.8.3")
    (tmp_path / "flash_attn.py").write_text("raise ImportError('x.so: undefined symbol: _ZN3c105ErrorC2E\\nmore')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)
    assert baselines.FLASH_ATTN.is_here()
    with pytest.raises(Unsupported) as caught:
        baselines.FLASH_ATTN.load()
    assert caught.value.message == (
        "flash-attn 2.8.3 is installed but cannot be imported (x.so: undefined symbol: _ZN3c105ErrorC2E)."
    )


@pytest.mark.parametrize("impl", ALL)
@pytest.mark.parametrize("head_dim", [8, 16, 40, 64, 80, 96, 128, 160, 192, 256])
def test_head_dimensions_are_taken_or_refused_by_one_table(impl: str, head_dim: int) -> None:
    """The planner and the run ask the same function, so that no case passes one and fails at the other."""
    reason = refusal(impl, 1, 1, 1, 64, 64, head_dim, layout="bshd")
    if impl == "flashinfer" and head_dim not in (64, 128, 256):
        assert reason == f"flashinfer has kernels for head dimensions 64, 128, 256, not for {head_dim}."
    else:
        assert reason == ""


# (seq_q, seq_kv) -> who takes it causal. Visible pairs, bottom-right: 9 of 10 for (2, 5), 3 of 10 for (5, 2).
@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "refused"),
    [
        (5, 5, {}),
        (2, 5, {"torch-cudnn": "top-left"}),
        (1, 5, {}),  # a single query sees every key: there is no mask
        (
            5,
            2,
            {
                "torch-cudnn": "top-left",
                "torch-efficient": "no result for queries that see no key",
                "flashinfer": "no result for queries that see no key",
                "xformers": "no result for queries that see no key",
            },
        ),
    ],
)
def test_a_mask_that_a_library_aligns_otherwise_is_refused(seq_q: int, seq_kv: int, refused: dict[str, str]) -> None:
    said = {impl: reason for impl in ALL if (reason := refusal(impl, 1, 1, 1, seq_q, seq_kv, 64, causal=True))}
    assert said.keys() == refused.keys()
    assert all(part in said[impl] for impl, part in refused.items())


def test_a_mask_is_no_obstacle_without_causal() -> None:
    assert {refusal(impl, 1, 1, 1, 5, 2, 64) for impl in ALL} == {""}


def test_types_and_architectures_that_a_kernel_does_not_have_are_refused() -> None:
    assert refusal("flash-attn-2", 1, 1, 1, 8, 8, 64, dtype="fp32") == "flash-attn-2 takes fp16 and bf16, not fp32."
    assert refusal("torch-math", 1, 1, 1, 8, 8, 64, dtype="fp32", sm="sm_75") == ""
    old = "flash-attn-2 needs compute capability 8.0 or higher; this GPU has 7.5."
    assert refusal("flash-attn-2", 1, 1, 1, 8, 8, 64, sm="sm_75") == old
    hopper = "flash-attn-3 needs compute capability 9.x; this GPU has "
    assert refusal("flash-attn-3", 1, 1, 1, 8, 8, 64, sm="sm_89") == f"{hopper}8.9."
    assert refusal("flash-attn-3", 1, 1, 1, 8, 8, 64, sm="sm_120") == f"{hopper}12.0."
    assert refusal("flash-attn-3", 1, 1, 1, 8, 8, 64, sm="sm_90") == ""


def test_more_sequences_or_heads_than_a_grid_axis_holds_are_refused() -> None:
    # 65535 is the most that y and z of a grid hold.
    said = "flash-attn-2 launches a grid of 65536 sequences by 1 heads; an axis holds 65535."
    assert refusal("flash-attn-2", 65_536, 1, 1, 10, 10, 16) == said
    assert "65538 heads" in refusal("torch-flash", 1, 65_538, 65_538, 32, 32, 16)
    assert refusal("flash-attn-2", 65_535, 1, 1, 10, 10, 16) == ""
    assert refusal("triton-flash", 1, 65_538, 65_538, 32, 32, 16) == ""


def test_flashinfer_joins_sequences_along_tokens() -> None:
    assert "layout bshd, or a batch of 1" in refusal("flashinfer", 2, 1, 1, 8, 8, 64)
    assert refusal("flashinfer", 2, 1, 1, 8, 8, 64, layout="bshd") == ""
    assert refusal("flashinfer", 1, 2, 1, 8, 8, 64) == ""


def test_the_cpu_knows_no_limits_of_gpus() -> None:
    flash = find("torch-flash")
    assert flash is not None
    case = Case("torch-flash", AttentionShape(1, 1, 1, 50, 20, 16, True), "fp32")
    assert flash.unsupported(case, "host") is None
    assert flash.unsupported(case, "cuda", "sm_80") is not None


def test_math_predicts_its_score_matrix() -> None:
    # S and P in float32: 2 · 4 · 2 heads · 1000 · 1000 = 16 MB; flash needs none of it.
    shape = AttentionShape(1, 2, 2, 1000, 1000, 64)

    def required(impl: str) -> int:
        baseline = find(impl)
        assert baseline is not None
        return baseline.required_bytes(Case(impl, shape), "cuda")

    assert required("torch-math") > 16_000_000
    assert required("torch-flash") < 4_000_000
    # Q, K, V and O: 4 · 2 · 1000 · 64 halves; LSE: 2 · 1000 floats.
    assert required("triton-flash") == 1_024_000 + 8_000
    # and 128 MiB of workspace, 8 MiB of plan.
    assert required("flashinfer") == 1_024_000 + 8_000 + 136 * 2**20


def test_a_split_of_k_and_v_takes_memory_where_there_are_few_rows() -> None:
    flash = find("flash-attn-2")
    assert flash is not None
    # One tile of 64 rows can be split 128 ways: 128 · 64 rows of 64 + 64 floats, 4 MiB.
    decode = Case("flash-attn-2", AttentionShape(1, 1, 1, 64, 65536, 64))
    assert flash.required_bytes(decode, "cuda") - baselines.tensor_bytes(decode) == 64 * 4 + 128 * 64 * 128 * 4
    # 512 tiles keep the largest GPU busy: LSE alone.
    full = Case("flash-attn-2", AttentionShape(1, 8, 8, 4096, 4096, 64))
    assert flash.required_bytes(full, "cuda") - baselines.tensor_bytes(full) == 8 * 4096 * 4


def test_a_library_that_cannot_be_imported_takes_no_other_case_with_it(
    any_gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cpu.so: undefined symbol: x')")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Read anew: the modules that a test before this one has imported are set aside.
    for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    shape = AttentionShape(1, 1, 1, 16, 16, 16)
    cases = [Case("torch-math", shape), Case("numpy-flash", shape)]
    rule = StoppingRule(max_elapsed_ms=1.0, min_samples=1)
    broken, good = HostBackend(rule=rule).run_together(cases, any_gpu)
    assert isinstance(broken, Unsupported) and "cannot be imported (libtorch_cpu.so: undefined" in broken.message
    assert isinstance(good, RunResult) and good.verification is not None and good.verification.passed
