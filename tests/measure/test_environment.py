"""Provenance: what it finds, what it says where there is nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fa_bench.measure import environment as env


def test_environment_is_filled_without_importing_what_it_reports() -> None:
    code = (
        "import sys; from fa_bench.measure.environment import environment; e = environment('1.2'); "
        "assert e.driver == '1.2' and e.packages['numpy'] and e.python and e.cpu_count >= 1; "
        "sys.exit(any(m in sys.modules for m in ('numpy', 'torch', 'cupy', 'llvmlite', 'pynvml')))"
    )
    root = Path(env.fa_bench.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0


def test_package_versions_leaves_out_what_is_missing() -> None:
    assert env.package_versions(["numpy", "no-such-distribution"]).keys() == {"numpy"}


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS asks sysctl")
def test_cpu_name_reads_cpuinfo(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU @ 3 GHz\nmodel name\t: Other\n")
    assert env.cpu_name(cpuinfo) == "Some CPU @ 3 GHz"
    # Arm machines have no such line; then it is the architecture, if anything is known.
    cpuinfo.write_text("processor\t: 0\nCPU part\t: 0xd40\n")
    assert env.cpu_name(cpuinfo) == env.cpu_name(tmp_path / "missing")


def git(folder: Path, *args: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_git_commit_with_dirty_mark(tmp_path: Path) -> None:
    assert env.git_commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert env.git_commit(tmp_path) is None  # no commit yet
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert env.git_commit(tmp_path) == commit
    (tmp_path / "untracked").write_text("2")
    assert env.git_commit(tmp_path) == commit
    (tmp_path / "file").write_text("3")
    assert env.git_commit(tmp_path) == f"{commit}-dirty"
    # A folder inside somebody else's checkout is none.
    (tmp_path / "site-packages").mkdir()
    assert env.git_commit(tmp_path / "site-packages") is None
