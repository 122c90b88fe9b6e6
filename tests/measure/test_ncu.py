"""Nsight Compute as a program: command line, answers, failures, with a stand-in. No figure here is a GPU's."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fa_bench.measure import ncu_process
from fa_bench.measure.ncu import MODE, Ncu, Profile, probe
from fa_bench.measure.ncu_metrics import METRICS, metrics_of

PROGRAM = ("python", "-m", "program")
SIX = {
    "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum": 4096,
    "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum": 1024,
    "lts__t_sectors_srcunit_tex_op_read.sum": 100,
    "lts__t_sectors_srcunit_tex_op_write.sum": 33,
    "dram__bytes_read.sum": 2048,
    "dram__bytes_write.sum": 0,
}


def profiled(sm: int = 80) -> Profile:
    return Ncu().profile(PROGRAM, sm)


def refused(*lines: str) -> list[str]:
    """What ncu says around an error, as in the reports."""
    return [*lines, "==PROF== Disconnected from process 4711", "==WARNING== No kernels were profiled."]


def test_replay_caches_clocks_and_range_are_fixed_and_recorded(fake_ncu: Any) -> None:
    ncu = Ncu()
    assert ncu.profile(PROGRAM, 80).status == "ok"
    (run,) = fake_ncu.runs
    assert {name: value for name, value in run["options"].items() if name != "--metrics"} == {
        "--profile-from-start": "off",
        "--target-processes": "all",
        "--replay-mode": "kernel",
        "--cache-control": "all",
        "--clock-control": "none",
        "--page": "raw",
        "--print-units": "base",
    }
    assert (run["program"], run["locale"]) == (list(PROGRAM), "C")
    assert ncu.mode == "ncu 2024.3.2.0, kernel replay, caches flushed, clocks free"


def test_profilers_of_different_gpus_do_not_wait_for_each_others_lock(fake_ncu: Any) -> None:
    # ncu keeps its lock in TMPDIR. Each run has a folder of its own, which is gone afterwards.
    for _ in "AB":
        profiled()
    first, second = (Path(run["tmp"]) for run in fake_ncu.runs)
    assert first != second
    assert not first.exists() and not second.exists()


def test_few_metrics_are_asked_for(fake_ncu: Any) -> None:
    profiled()
    names = fake_ncu.runs[0]["options"]["--metrics"].split(",")
    # What the columns need, and nothing that is a ratio of two counters.
    assert len(names) == 11 and all(name.endswith(".sum") for name in names)
    assert set(SIX) | {"lts__t_bytes.sum"} <= set(names)


@pytest.mark.parametrize("form", ["wide", "long"])
def test_bytes_by_quantity_sectors_times_32(fake_ncu: Any, form: str) -> None:
    fake_ncu.answers(form=form, kernels=[{"name": "flash2_fwd", "counts": SIX}])
    (kernel,) = profiled().kernels
    assert kernel.name == "flash2_fwd"
    assert {name: kernel.bytes[name] for name in ("global_read", "global_write", "dram_read")} == {
        "global_read": 4096, "global_write": 1024, "dram_read": 2048,
    }  # fmt: skip
    assert (kernel.bytes["l2_read"], kernel.bytes["l2_write"]) == (3200, 1056)
    assert kernel.bytes["dram_write"] == 0  # a true zero


def test_hoppers_other_ways_to_load_are_global_too_and_asked_for_only_there(fake_ncu: Any) -> None:
    counts = {
        "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum": 1000,
        "l1tex__t_bytes_pipe_lsu_mem_global_op_ldgsts_cache_access.sum": 200,
        "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum": 30,
    }
    fake_ncu.answers(kernels=[{"name": "k", "counts": counts}])
    assert profiled(90).kernels[0].bytes["global_read"] == 1230
    assert profiled(80).kernels[0].bytes["global_read"] == 1000
    newer = {name for metric in METRICS if metric.first_sm for name in metric.names}
    assert newer and not newer & {name for metric in metrics_of(89) for name in metric.names}


def test_a_metric_with_another_name_on_this_chip_is_found_and_remembered(fake_ncu: Any) -> None:
    # GB202 calls them dram__bytes_op_read and dram__bytes_op_write.
    fake_ncu.answers(
        unknown=["dram__bytes_read.sum", "dram__bytes_write.sum"],
        one_at_a_time=True,
        kernels=[{"name": "k", "counts": {"dram__bytes_op_read.sum": 7, "dram__bytes_op_write.sum": 8}}],
    )
    ncu = Ncu()
    for runs in (3, 4):
        profile = ncu.profile(PROGRAM, 120)
        assert (profile.status, profile.reason) == ("ok", "")
        assert (profile.kernels[0].bytes["dram_read"], profile.kernels[0].bytes["dram_write"]) == (7, 8)
        assert len(fake_ncu.runs) == runs


def test_a_metric_that_the_chip_lacks_leaves_its_figure_blank_and_the_others(fake_ncu: Any) -> None:
    # GB10's memory is the system's: no DRAM metrics at all.
    fake_ncu.answers(unknown=[f"dram__bytes_{op}.sum" for op in ("read", "write", "op_read", "op_write")])
    profile = profiled(121)
    assert (profile.status, profile.reason) == ("ok", "ncu has no figure here of: dram_read, dram_write.")
    assert profile.kernels[0].bytes["dram_read"] is None
    assert profile.kernels[0].bytes["l2_read"] == 32


def test_a_figure_that_ncu_cannot_give_is_not_zero(fake_ncu: Any) -> None:
    fake_ncu.answers(kernels=[{"name": "k", "counts": {"dram__bytes_read.sum": "n/a", "dram__bytes_write.sum": 0}}])
    profile = profiled()
    assert (profile.status, profile.reason) == ("ok", "ncu has no figure here of: dram_read.")
    assert (profile.kernels[0].bytes["dram_read"], profile.kernels[0].bytes["dram_write"]) == (None, 0)


def test_no_metric_at_all_is_unknown_metric(fake_ncu: Any) -> None:
    fake_ncu.answers(unknown=[name for metric in METRICS for name in metric.names])
    ncu = Ncu()
    assert ncu.profile(PROGRAM, 80).status == "unknown_metric"
    runs = len(fake_ncu.runs)
    assert ncu.profile(PROGRAM, 80).status == "unknown_metric" and len(fake_ncu.runs) == runs


PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)


@pytest.mark.parametrize(
    ("lines", "returncode", "status", "said"),
    [
        (refused(PERMISSION), 0, "no_permission", "developer.nvidia.com/ERR_NVGPUCTRPERM"),
        (refused(PERMISSION), 1, "no_permission", "ERR_NVGPUCTRPERM"),
        (
            [
                "==ERROR== An error was reported by the driver:",
                "==ERROR== Cuda driver is not compatible with Nsight Compute.",
                "==ERROR== The application returned an error code (11).",
            ],
            11,
            "incompatible",
            "error code (11)",
        ),
        (
            refused("==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips."),
            0,
            "incompatible",
            "--list-chips",
        ),
        (
            refused("==ERROR== Failed to prepare kernel for profiling", "==ERROR== Unknown Error on device 0."),
            9,
            "failed",
            "Unknown Error on device 0.",
        ),
        (
            refused("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool "
                    "(like DCGM) is concurrently collecting profiling data."),
            1,
            "failed",
            "like DCGM",
        ),
        (["ERROR: flash2 ran out of memory on the device.", "==ERROR== The application returned an error code (1)."],
         1, "failed", "ran out of memory"),
        (refused(), 0, "no_kernels", "No kernels were profiled."),
        (["ERROR : nsight-compute directory is not found under /opt/nvidia. Nsight Compute is not installed."],
         1, "absent", "Nsight Compute is not installed"),
    ],
)  # fmt: skip
def test_each_failure_is_told_apart_and_keeps_what_ncu_said(
    fake_ncu: Any, lines: list[str], returncode: int, status: str, said: str
) -> None:
    fake_ncu.answers(say=lines, returncode=returncode)
    profile = profiled()
    assert (profile.status, profile.kernels) == (status, ())
    assert said in profile.reason and len(profile.reason) < 400


def test_a_long_output_keeps_its_end(fake_ncu: Any) -> None:
    fake_ncu.answers(say=[*(f"==ERROR== line {n}" for n in range(500)), "==ERROR== the last"], returncode=1)
    reason = profiled().reason
    assert reason.startswith("ncu ended with exit code 1. It said: ") and reason.endswith("the last")
    assert "line 0 " not in reason


def test_what_no_other_case_will_change_is_not_tried_again(fake_ncu: Any) -> None:
    fake_ncu.answers(say=refused(PERMISSION), returncode=0)
    ncu = Ncu()
    assert {ncu.profile(PROGRAM, 80).status for _ in range(3)} == {"no_permission"}
    assert len(fake_ncu.runs) == 1


def test_a_case_that_failed_does_not_take_the_next_one_with_it(fake_ncu: Any) -> None:
    fake_ncu.answers(say=["==ERROR== Unknown Error on device 0."], returncode=9)
    ncu = Ncu()
    assert ncu.profile(PROGRAM, 80).status == "failed"
    fake_ncu.answers()
    assert ncu.profile(PROGRAM, 80).status == "ok"


def test_without_ncu_it_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(ncu_process, "_PLACES", (str(tmp_path / "*" / "ncu"),))
    ncu = Ncu()
    assert ncu.profile(PROGRAM, 80) == Profile("absent", "ncu is not on this machine.")
    assert ncu.mode == MODE


def test_an_ncu_that_cannot_be_started_fails(tmp_path: Path) -> None:
    (tmp_path / "ncu").write_text("no program")
    profile = Ncu(str(tmp_path / "ncu")).profile(PROGRAM, 80)
    assert profile.status == "failed" and "Permission denied" in profile.reason


def test_the_toolkits_ncu_is_found_where_path_has_none(
    fake_ncu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit = tmp_path / "cuda" / "bin"
    toolkit.mkdir(parents=True)
    fake_ncu.path.rename(toolkit / "ncu")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert ncu_process.find() == str(toolkit / "ncu")


def test_one_that_hangs_is_ended_with_all_that_it_started(fake_ncu: Any, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    fake_ncu.answers(hang=str(pid_file))
    profile = Ncu(timeout_s=3.0).profile(PROGRAM, 80)
    assert profile.status == "timeout"
    assert profile.reason.startswith("ncu was ended after 3 s. It said: ==PROF== Connected")
    assert gone(int(pid_file.read_text()))


def test_closing_from_another_thread_ends_a_profile(fake_ncu: Any, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    fake_ncu.answers(hang=str(pid_file))
    ncu = Ncu(timeout_s=60.0)
    found: list[Profile] = []
    thread = threading.Thread(target=lambda: found.append(ncu.profile(PROGRAM, 80)))
    thread.start()
    while not pid_file.exists() or not pid_file.read_text():
        time.sleep(0.01)
    ncu.close()
    thread.join()
    assert found[0].status == "failed"
    assert gone(int(pid_file.read_text()))


def gone(pid: int) -> bool:
    """Whether a process is no more, or is dead and waits for its parent; given a moment to get there."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_doctor_is_told_version_and_permission(fake_ncu: Any, tmp_path: Path) -> None:
    driver, process = tmp_path / "proc/driver/nvidia", tmp_path / "proc/self"
    driver.mkdir(parents=True)
    process.mkdir()
    (process / "status").write_text("Name:\tpython\nCapEff:\t0000000000200000\n")  # bit 21: CAP_SYS_ADMIN
    (driver / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    found = probe(tmp_path)
    assert (found.path, found.version) == (str(fake_ncu.path), "2024.3.2.0")
    assert (found.admin_only, found.privileged, found.refused) == (True, True, False)
    (process / "status").write_text("CapEff:\t00000000a80425fb\n")  # what a container has by default
    assert "keeps counters to administrators, and this process is none" in probe(tmp_path).sentence
    (driver / "params").write_text("RmProfilingAdminOnly: 0\n")
    assert probe(tmp_path).sentence.endswith("the driver lets every user read counters")
    (driver / "params").unlink()
    assert probe(tmp_path).admin_only is None
    assert fake_ncu.runs == []


def test_doctor_without_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu_process, "_PLACES", ())
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert probe(tmp_path).sentence == "not found" and not probe(tmp_path).refused


def test_the_environment_of_the_program_is_the_one_that_was_given(fake_ncu: Any, tmp_path: Path) -> None:
    other = {**os.environ, "FAKE_NCU": str(tmp_path / "other.json")}
    (tmp_path / "other.json").write_text('{"log": "%s", "say": ["==ERROR== other"]}' % (tmp_path / "log"))
    assert "other" in Ncu(environment=other).profile(PROGRAM, 80).reason
