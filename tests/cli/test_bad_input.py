"""Bad input: exit code 2, one sentence and a next step, no traceback, nothing written, nothing run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# (arguments, what the sentence must name, what the next step must name)
CASES = [
    ("swep", "'swep'", "'sweep'"),
    ("sweep --sek 1k", "'--sek'", "'--seq'"),
    ("sweep --seq", "--seq", ""),
    ("sweep --config quik", "'quik'", "'quick'"),
    ("sweep --config absent.toml", "'absent.toml'", "quick"),
    ("sweep --config broken.toml", "not valid TOML", ""),
    ("sweep --config unknown.toml", "'sek'", "'seq'"),
    ("sweep --config offside.toml", "head_dim in 'offside.toml'", ""),
    ("sweep --gpu a100-sxm-8", "'a100-sxm-8'", "'a100-sxm-80'"),
    ("sweep --impl flahs2", "'flahs2'", "'flash2'"),
    ("sweep --impl flash2,", "--impl", ""),
    # What a kernel does not do is no option that is taken and forgotten.
    ("sweep --dropout 0.1", "'--dropout'", "--help"),
    ("sweep --config dropout.toml", "'dropout'", ""),
    ("sweep --features dropout", "'dropout'", "dropout=0.1"),
    ("sweep --features softcap=x", "'x' of softcap", ""),
    ("sweep --features softcap=1e8", "softcap must be from 0 (none) to 1000", ""),
    ("sweep --features dropout=0.1+dropout=0.5", "dropout stands twice", ""),
    ("sweep --features dropout=1", "dropout_p must be", ""),
    ("sweep --features alibi+tanh", "'tanh'", "alibi"),
    ("sweep --window 128:x", "'x'", "128:0"),
    ("sweep --window -5", "'-5'", ""),
    ("sweep --head-dim-v 65", "head_dim_v must be a multiple of 8", "64"),
    ("sweep --direction back", "'back'", "fwd, bwd"),
    ("sweep --dtype fp61", "'fp61'", "'fp16'"),
    ("sweep --layout bhsq", "'bhsq'", "'bhsd'"),
    ("sweep --causal bth", "'bth'", "'both'"),
    ("sweep --device cude", "'cude'", "'cuda'"),
    ("sweep --format jsn", "'jsn'", "--help"),
    ("sweep --seq 512..", "--seq: '512..'", ""),
    ("sweep --seq 16k..512", "--seq: '16k..512'", ""),
    ("sweep --seq 512..5000", "misses its end", ""),
    ("sweep --seq 512..4k:0", "--seq", ""),
    ("sweep --seq 0", "--seq: '0'", ""),
    ("sweep --seq many", "'many'", ""),
    ("sweep --seq -1", "'-1'", ""),
    ("sweep --head-dim 65", "65", "64"),
    ("sweep --head-dim 264", "264", "256"),
    ("sweep --head-dim 0", "--head-dim", ""),
    ("sweep --block 48x7", "block_n", ""),
    ("sweep --block 64", "'64'", ""),
    ("sweep --block 512x64", "block_m", ""),
    ("sweep --stages 3", "stages", ""),
    ("sweep --heads 8 --kv-heads 3", "8 is not a multiple of 3", ""),
    ("sweep --batch 0", "--batch", ""),
    ("sweep --heads 0", "--heads", ""),
    ("sweep --kv-heads 0", "--kv-heads", ""),
    ("sweep --tokens 0", "--tokens", ""),
    ("sweep --tokens 1k --seq 2k", "no sequence of length 2048", ""),
    ("sweep --hidden 32 --head-dim 64", "holds no head of 64", ""),
    ("sweep --tokens 16k --batch 2", "--tokens", ""),
    ("sweep --hidden 2048 --heads 2", "--hidden", ""),
    ("sweep --seqlens 128,5x", "--seqlens: ''", "QxKV"),
    ("sweep --seqlens 0x5,0x3", "a sequence with queries", ""),
    ("sweep --seqlens 5 --seq 64", "--seq and --seqlens", ""),
    ("sweep --seqlens 5 --batch 2", "--batch and --seqlens", ""),
    ("io-model --seqlens 5 --tokens 2", "--tokens and --seqlens", ""),
    ("check --seqlens 5 --seq 64", "--seq and --seqlens", ""),
    ("sweep --jobs 0", "--jobs", ""),
    ("sweep --jobs two", "--jobs", ""),
    ("sweep --seq 16 --out file", "file", ""),
    ("sweep --seq 16 --out file/below", "file", ""),
    ("sweep --seq 16 --resume", "No unfinished run", "--out"),
    ("sweep stray", "stray", ""),
    ("io-model --block 48x7", "block_n", ""),
    ("io-model --impl numpy-flash", "numpy-flash", "flash2"),
    ("io-model --gpu h10", "'h10'", "'h100"),
    ("check --seq 127x", "--seq", "127x300"),
    ("check --seq 0x1", "--seq", "127x300"),
    ("check --device host", "host", "emulator"),
    ("check --dtype fp8", "'fp8'", "fp16"),
    ("check --heads 3 --kv-heads 2", "3 is not a multiple of 2", ""),
    ("gpus a1000", "'a1000'", "a100"),
    ("kernels --head-dim 65", "65", "64"),
    ("kernels --impl flash3", "'flash3'", "flash"),
    ("cache clean", "'clean'", "--help"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "broken.toml").write_text("seq = [")
    (tmp_path / "unknown.toml").write_text('sek = "1k"')
    (tmp_path / "offside.toml").write_text("head_dim = 0")
    (tmp_path / "dropout.toml").write_text("dropout = 0.1")
    (tmp_path / "file").write_text("not a folder")
    return tmp_path


@pytest.mark.parametrize(("line", "named", "step"), CASES, ids=[line for line, *_ in CASES])
def test_bad_input(
    line: str, named: str, step: str, cli: Callable, fakes: Callable, emulator: Callable, host: Callable, folder: Path
) -> None:
    opened = (emulator(), host())
    fakes(*opened)
    before = sorted(folder.rglob("*"))
    ran = cli(*line.split())
    assert ran.code == 2
    assert ran.out == ""
    message, *hint = ran.err.splitlines()
    assert message.startswith("Error: ")
    assert message.endswith(".")
    assert named in message
    assert len(hint) <= 1
    assert step in "".join(hint)
    assert "Traceback" not in ran.err
    assert sorted(folder.rglob("*")) == before
    assert not any(backend.ran for backend in opened)


def test_the_program_itself_ends_so(tmp_path: Path) -> None:
    """The same through the entry point, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "from fa_bench.cli.app import main; main()", "sweep", "--head-dim", "65"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "Error: head_dim must be a multiple of 8 up to 256, not 65."
    assert not list(tmp_path.iterdir())


def test_an_unknown_error_keeps_its_traceback(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench.model import gpus

    def broken() -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(gpus, "all_gpus", broken)
    with pytest.raises(ZeroDivisionError):
        cli("gpus")


def test_an_output_folder_without_a_name_is_refused(cli: Callable) -> None:
    ran = cli("sweep", "--seq", "64", "--out", "")
    assert ran.code == 2
    assert "A folder has a name." in ran.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", "from fa_bench.cli.app import main; main()", "gpus"]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "Error: No space is left on the device that is written to.\n"
