"""The registry: complete, sane and findable; a file that is off is refused with the reason."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from fa_bench.errors import UsageError
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu

ALL = gpus.all_gpus()
A100_TOML = (resources.files("fa_bench.model") / "gpus" / "a100-sxm-80.toml").read_text(encoding="utf-8")

#: fp32 lanes per SM, by compute capability: NVIDIA's architecture whitepapers.
FP32_LANES = {
    (7, 0): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (12, 0): 128,
    (12, 1): 128,
}


def without(key: str) -> str:
    return re.sub(rf"(?m)^{key} = .*$", "", A100_TOML)


def changed(key: str, value: str) -> str:
    text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", A100_TOML)
    assert count == 1
    return text


def test_one_gpu_in_full() -> None:
    # A100 whitepaper: 108 SMs, 40 MB of L2, 164 KB of shared memory per SM and 163 KB per block, 80 GB, 2039 GB/s.
    a100 = gpus.get("a100-sxm-80")
    assert a100.name == "NVIDIA A100-SXM4-80GB"
    assert (a100.sm, a100.compute_capability, a100.sm_count) == ("sm_80", (8, 0), 108)
    assert (a100.l2_bytes, a100.mem_bytes) == (41_943_040, 85_899_345_920)
    # The same paper: 192 KB of L1 and shared memory per SM, two L2 partitions.
    assert (a100.l1_bytes, a100.l2_partitions) == (196_608, 2)
    assert (a100.smem_per_sm_bytes, a100.smem_per_block_bytes) == (167_936, 166_912)
    assert (a100.boost_mhz, a100.mem_bandwidth_gbs) == (1410, 2039)
    assert (a100.fp16_tensor_tflops, a100.bf16_tensor_tflops, a100.fp32_tflops) == (312, 312, 19.5)
    assert (a100.mufu_per_clk_per_sm, a100.smem_bytes_per_clk_per_sm) == (16, 128)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("a100-sxm-80", "a100-sxm-80"),
        ("A100-SXM-80", "a100-sxm-80"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"),
        ("A100-SXM4-80GB", "a100-sxm-80"),
        ("nvidia a100 sxm4 80gb", "a100-sxm-80"),
        ("A100", "a100-sxm-80"),
        ("A100-40GB", "a100-sxm-40"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("Tesla T4", "t4"),
        ("V100-SXM2-16/32GB", "v100-sxm2-32"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX 5090 (400W)", "rtx-5090"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100 (assumed)", "h100-sxm"),
        ("H100 PCIe", "h100-pcie"),
        ("H200 (1500 MHz)", "h200-sxm"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA GB200", "gb200"),
        ("A5000", "rtx-a5000"),
        ("RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA GH200 480GB", "gh200-96"),
        ("GH200-96GB (GPU)", "gh200-96"),
        ("B200-SXM (HGX 1000W)", "b200-sxm"),
        ("NVIDIA GB10", "gb10"),
        ("DGX Spark", "gb10"),
        ("A100 80GB SXM4", "a100-sxm-80"),
        ("A100 80GB PCIe", "a100-pcie-80"),
        ("H100 80GB SXM5", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("4090", "rtx-4090"),
        ("GH200", "gh200-96"),
    ],
)
def test_a_gpu_is_found_by_slug_driver_name_and_alias(name: str, slug: str) -> None:
    assert gpus.get(name).slug == slug


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rtx4090", "Did you mean 'rtx-4090'?"),
        ("a100-sxm-81", "Did you mean 'a100-sxm-80'?"),
        ("a100 80gb sxm5", "Did you mean 'a100-sxm-80'?"),  # nearest is an alias; its slug is named
        ("h20O", "Did you mean 'h20'?"),
    ],
)
def test_an_unknown_gpu_is_told_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"There is no GPU '{name}' in the registry") as caught:
        gpus.get(name)
    assert caught.value.hint == hint
    assert gpus.find(name) is None


@pytest.mark.parametrize("name", ["", "voodoo banshee", "()"])
def test_a_name_near_nothing_is_told_all_of_them(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        gpus.get(name)
    assert caught.value.hint == f"Known: {', '.join(gpu.slug for gpu in ALL)}."


def test_the_registry_holds_what_the_documentation_names() -> None:
    assert {gpu.slug for gpu in ALL} >= {
        "t4", "v100-sxm2-32", "a100-sxm-40", "a100-pcie-40", "a100-sxm-80", "a100-pcie-80", "a30", "a10g", "l4",
        "l40s", "rtx-3090", "rtx-4090", "rtx-5090", "h100-sxm", "h100-pcie", "h200-sxm", "gh200-96", "b200-sxm",
        "h20", "gb200", "rtx-a5000", "rtx-a6000", "rtx-6000-ada",
    }  # fmt: skip


@pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.slug)
class TestEveryGpu:
    """Sanity over all files: relations that hold between figures which come from different sources."""

    def test_it_is_found_by_each_of_its_names(self, gpu: Gpu) -> None:
        assert all(gpus.get(name) is gpu for name in (gpu.slug, gpu.name, *gpu.aliases))

    def test_the_fp32_peak_is_two_flops_per_lane_and_clock(self, gpu: Gpu) -> None:
        lanes = FP32_LANES[gpu.compute_capability] * gpu.sm_count
        # 8 %: the B200's sheet rounds 74.4 up to 80; all others agree within 1 %.
        assert 2 * lanes * gpu.boost_max_mhz * 1e-6 == pytest.approx(gpu.fp32_tflops, rel=0.08)

    def test_the_tensor_peak_is_a_power_of_two_per_sm_and_clock(self, gpu: Gpu) -> None:
        # FLOPs per SM and clock: 512 (GeForce, Ada) to 8192 (Blackwell). 6 %: the B200's peak is given for a clock
        # below its boost; all others agree within 2 %.
        assert gpu.fp16_tensor_tflops is not None
        per_clock = gpu.fp16_tensor_tflops * 1e6 / (gpu.sm_count * gpu.boost_mhz)
        powers = [2**i for i in range(9, 14)]
        assert min(abs(per_clock / power - 1) for power in powers) < 0.06

    def test_tf32_has_half_and_fp8_twice_the_rate(self, gpu: Gpu) -> None:
        assert gpu.fp16_tensor_tflops is not None
        if gpu.tf32_tensor_tflops is not None:
            assert gpu.tf32_tensor_tflops * 2 == pytest.approx(gpu.fp16_tensor_tflops, rel=0.03)
        if gpu.fp8_tensor_tflops is not None:
            assert gpu.fp8_tensor_tflops == pytest.approx(2 * gpu.fp16_tensor_tflops, rel=0.03)

    def test_bf16_is_as_fast_as_fp16_from_ampere_on(self, gpu: Gpu) -> None:
        expected = gpu.fp16_tensor_tflops if gpu.compute_capability >= (8, 0) else None
        assert gpu.bf16_tensor_tflops == expected

    def test_the_driver_keeps_one_kib_of_shared_memory_from_ampere_on(self, gpu: Gpu) -> None:
        kept = 1024 if gpu.compute_capability >= (8, 0) else 0
        assert gpu.smem_per_block_bytes == gpu.smem_per_sm_bytes - kept

    def test_figures_lie_in_the_range_of_gpus(self, gpu: Gpu) -> None:
        assert 16 <= gpu.sm_count <= 256
        assert 2 << 20 <= gpu.l2_bytes <= 256 << 20
        assert 8 << 30 <= gpu.mem_bytes <= 512 << 30
        assert 200 <= gpu.mem_bandwidth_gbs <= 10_000
        assert 1000 <= gpu.boost_mhz <= gpu.boost_max_mhz <= 3500
        assert gpu.regs_per_sm == 65536
        assert gpu.max_threads_per_sm in (1024, 1536, 2048)
        assert gpu.max_blocks_per_sm in (16, 24, 32)

    def test_sources_are_named_once_each(self, gpu: Gpu) -> None:
        assert len(set(gpu.sources)) == len(gpu.sources) >= 3
        assert any("32 banks" in source for source in gpu.sources)

    def test_the_power_of_the_board_has_two_sources_or_is_marked(self, gpu: Gpu) -> None:
        if gpu.board_power_w is None:
            return
        watts = re.compile(rf"(?<![\d,.]){gpu.board_power_w:g} W\b")
        naming = [source for source in gpu.sources if watts.search(source)]
        assert len(naming) >= (1 if "board_power_w" in gpu.unverified else 2), naming

    def test_chips_of_one_capability_agree(self, gpu: Gpu) -> None:
        twins = [other for other in ALL if other.compute_capability == gpu.compute_capability]
        figures = {
            (
                g.arch.split()[0],
                g.l1_bytes,
                g.smem_per_sm_bytes,
                g.max_threads_per_sm,
                g.max_blocks_per_sm,
                g.mufu_per_clk_per_sm,
            )
            for g in twins
        }
        assert len(figures) == 1


def test_only_chips_with_large_hbm_are_known_to_have_two_l2_partitions() -> None:
    two = {gpu.arch for gpu in ALL if gpu.l2_partitions == 2}
    assert two == {"Ampere GA100", "Hopper", "Blackwell GB100"}
    # Two sources give Volta one; of the others at most one source says anything.
    assert all("l2_partitions" in gpu.unverified for gpu in ALL if gpu.l2_partitions == 1 and gpu.arch != "Volta")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name = ", "a100-sxm-80.toml is not valid TOML"),
        (without("sm_count"), "lacks sm_count"),
        (without("sm_count").replace("l2_mib", "l2_mb"), "unknown key 'l2_mb'"),
        (A100_TOML + "sm_cuont = 108\n", "unknown key 'sm_cuont'"),
        (A100_TOML + "sm_count = 108\n", "not valid TOML"),  # the same key twice
        (changed("sm_count", "0"), "sm_count must be a whole number of at least 1, not 0"),
        (changed("sm_count", "108.5"), "sm_count must be a whole number"),
        (changed("sm_count", '"108"'), "sm_count must be a whole number"),
        (changed("sm_count", "true"), "sm_count must be a whole number"),
        (changed("boost_mhz", "-1410"), "boost_mhz must be a positive number, not -1410"),
        (changed("boost_mhz", "nan"), "boost_mhz must be a positive number"),
        (changed("boost_mhz", "inf"), "boost_mhz must be a positive number"),
        (changed("boost_mhz", "1500"), "boost_mhz above boost_max_mhz"),
        (changed("fp16_tensor_tflops", '"fast"'), "fp16_tensor_tflops must be a positive number"),
        (changed("fp16_tensor_tflops", "0"), "fp16_tensor_tflops must be a positive number"),
        (changed("name", '""'), "name must be text"),
        (changed("name", "80"), "name must be text"),
        (changed("aliases", '"A100"'), "aliases must be a list of texts"),
        (changed("aliases", '["A100", 80]'), "aliases must be a list of texts"),
        (changed("compute_capability", '"sm_80"'), "compute_capability must be like '8.0', not 'sm_80'"),
        (changed("smem_per_block_kib", "165"), "allows one block more shared memory than an SM has"),
        (changed("l1_kib", "164"), "leaves no L1: smem_per_sm_kib must be less than l1_kib"),
        (changed("l2_partitions", "3"), "has an L2 of 3 partitions; known are 1 and 2"),
        (changed("unverified", '["l2"]'), "marks 'l2' as unverified but does not give it"),
        (re.sub(r"(?s)sources = \[.*?\]", "sources = []", A100_TOML), "names no source"),
    ],
)
def test_a_file_that_is_off_is_refused_with_the_reason(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=re.escape(fault)):
        gpus.parse("a100-sxm-80", text)


def test_a_misspelt_key_is_told_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        gpus.parse("x", A100_TOML + "sm_cuont = 108\n")
    assert caught.value.hint == "Did you mean 'sm_count'?"


def test_a_peak_that_is_left_out_is_not_known() -> None:
    gpu = gpus.parse("x", without("bf16_tensor_tflops"))
    assert (gpu.bf16_tensor_tflops, gpu.tensor_tflops("bf16")) == (None, None)
    assert gpu.tensor_tflops("fp16") == 312
    assert gpu.tensor_tflops("fp32") == 156  # TF32


def test_unverified_figures_are_named_by_the_field_they_become() -> None:
    gpu = gpus.parse("x", changed("unverified", '["l2_mib", "boost_mhz"]'))
    assert gpu.unverified == ("l2_bytes", "boost_mhz")


def test_a_gpu_is_added_by_one_file(tmp_path: Path) -> None:
    (tmp_path / "new-one.toml").write_text(changed("name", '"New"').replace('"A100', '"N100'), encoding="utf-8")
    (tmp_path / "README.md").write_text("not a GPU", encoding="utf-8")
    (gpu,) = gpus.read_folder(tmp_path)
    assert gpu.slug == "new-one"


def test_a_name_that_two_files_claim_is_refused(tmp_path: Path) -> None:
    for slug in ("one", "two"):
        (tmp_path / f"{slug}.toml").write_text(A100_TOML, encoding="utf-8")
    with pytest.raises(UsageError, match=r"claims the name 'a100-sxm4-80gb', which (one|two)\.toml has"):
        gpus.read_folder(tmp_path)


def test_an_alias_that_adds_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(changed("aliases", '["A100_SXM4 80GB"]'), encoding="utf-8")
    with pytest.raises(UsageError, match=r"x\.toml claims the name 'a100-sxm4-80gb', which x\.toml has already"):
        gpus.read_folder(tmp_path)


def test_importing_the_registry_reads_no_file() -> None:
    # tomllib is imported with the registry, but no file is read before a GPU is asked for.
    code = (
        "import tomllib; tomllib.loads = None\n"
        "from fa_bench.model import gpus\n"
        "try:\n    gpus.get('t4')\nexcept TypeError:\n    print('read on use')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "read on use\n"


def test_the_files_are_toml_without_other_tables() -> None:
    for entry in (resources.files("fa_bench.model") / "gpus").iterdir():
        data = tomllib.loads(entry.read_text(encoding="utf-8"))
        assert not any(isinstance(value, dict) for value in data.values())
