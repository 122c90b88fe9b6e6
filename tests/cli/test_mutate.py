"""``fa-bench mutate``: tables of 80 columns, CSV, JSON, the exit code, and errors in a sentence."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fa_bench.cli.axes import parse_pairs
from fa_bench.cli.mutate import DEFAULT_AXES, DEFAULT_BLOCK
from fa_bench.mutation.bench import Bench

sys.path.insert(0, str(Path(__file__).parents[1] / "mutation"))

from only_key import PTX, TOML

OPTIONS = ("--seq", "5x1", "--head-dim", "64", "--heads", "1", "--dtype", "fp32", "--no-causal", "--jobs", "1")


@pytest.fixture
def own_kernel(tmp_path: Path) -> Path:
    (tmp_path / "only_key.ptx").write_text(PTX)
    path = tmp_path / "only_key.toml"
    path.write_text(TOML)
    return path


@pytest.fixture
def mutate(cli: Callable, own_kernel: Path) -> Callable:
    return lambda *args: cli("mutate", "--impl", str(own_kernel), *OPTIONS, *args)


def test_tables_of_80_columns(mutate: Callable) -> None:
    ran = mutate("--list")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    lines = [line.split() for line in ran.out.splitlines()]
    # tests/mutation/test_run.py has the verdict of each.
    assert ["kernel", "dropped", "mutants", "checks", "fault", "result", "bytes", "MISSED", "slower", "none"] in lines
    assert ["only_key", "barrier", "2", "1", "-", "-", "-", "-", "-", "1"] in lines
    assert ["only_key", "mask", "2", "-", "-", "1", "-", "-", "-", "1"] in lines
    assert ["only_key", "predicate", "4", "1", "1", "-", "-", "-", "1", "1"] in lines
    assert ["all", "8", "2", "1", "1", "-", "-", "1", "3"] in lines
    assert ["barrier", "checks", "race", "1"] in lines
    assert "Every mutant" in ran.out
    assert "8 mutants: 4 caught, 0 missed, 1 slower, 3 without effect." in ran.err


def test_csv_and_json(mutate: Callable) -> None:
    rows = list(csv.DictReader(io.StringIO(mutate("--only", "barrier", "--format", "csv").out)))
    assert [(row["kind"], row["verdict"], row["finding"], row["copies"]) for row in rows] == [
        ("barrier", "checks", "race", "1"),
        ("barrier", "none", "", "1"),
    ]
    ran = mutate("--only", "mask", "--format", "json", "--quiet")
    document = json.loads(ran.out)
    assert ran.err == ""
    assert [document[key] for key in ("schema", "passed", "checks")] == [1, True, True]
    assert [mutant["verdict"] for mutant in document["mutants"]] == ["none", "result"]
    assert document["mutants"][0]["source"] is None and document["mutants"][0]["finding"] is None


def test_a_missed_mutant_is_exit_code_1(mutate: Callable, own_kernel: Path) -> None:
    extra = "selp.f32 %f4, 0f32800000, 0f00000000, %p1;\n    add.f32 %f3, %f3, %f4;\n    setp.lt.u32 %p2"
    own_kernel.with_suffix(".ptx").write_text(PTX.replace("setp.lt.u32 %p2", extra))
    ran = mutate("--only", "mask", "--quiet")
    assert ran.code == 1
    assert "always its second operand; " in ran.err and ran.err.startswith("MISSED only_key, PTX line ")
    assert "Changed something, and nothing noticed" in ran.out


def test_without_checks_and_with_a_limit(mutate: Callable) -> None:
    ran = mutate("--no-checks", "--limit", "1", "--format", "md")
    assert "| only_key | barrier | 1 | - | - | 1 |" in ran.out
    assert "A sample of 1 of 8 mutants. The emulator's checks were off." in ran.out
    assert "A sample of 1 of 8 mutants: 1 caught" in ran.err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--only", "bariers"), "--only: 'bariers' is none of barrier, wait, mask, predicate."),
        (("--only", ""), "--only: '' has an empty item"),
        (("--only", "wait"), "These kernels have no wait that could be dropped."),
        (("--head-dim", "40"), "only_key.toml has no case to mutate: only_key takes head_dim 64, not 40."),
        (("--seq", "5xx"), "--seq: "),
        (("--gpu", "b9000"), "There is no GPU 'b9000'"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_is_off_is_said_in_a_sentence(mutate: Callable, args: tuple[str, ...], sentence: str) -> None:
    ran = mutate(*args)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.out == ""


def test_what_is_no_kernel(cli: Callable) -> None:
    unknown, other = (cli("mutate", "--impl", impl) for impl in ("flash9", "numpy-flash"))
    assert unknown.code == 2 and "There is no implementation 'flash9'." in unknown.err
    assert other.code == 2
    assert "Error: numpy-flash is no CUDA kernel of ours." in other.err
    assert "Known here: standard, flash1, flash2, flash2-atomic." in other.err
    torch = cli("mutate", "--impl", "torch-flash-blocked")
    assert torch.code == 2 and "torch-flash-blocked is no CUDA kernel of ours." in torch.err


def test_a_description_without_an_argument_is_a_sentence(mutate: Callable, own_kernel: Path) -> None:
    own_kernel.write_text(TOML.replace(', "i32 seq_kv"]', "]"))
    ran = mutate()
    assert (ran.code, ran.out) == (2, "")
    said = "Kernel only_key takes 6 arguments, not 5: correct args of this kernel in its TOML file."
    assert ran.err.splitlines()[-1] == f"Error: {said}"


def test_an_interrupt_shows_what_was_judged(mutate: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the third of eight mutants runs."""
    judge, started = Bench.outcome, []

    def outcome(bench: Bench, *args: object) -> object:
        started.append(args)
        if len(started) == 3:
            raise KeyboardInterrupt
        return judge(bench, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Bench, "outcome", outcome)
    ran = mutate("--format", "json")
    document = json.loads(ran.out)
    assert ran.code == 130
    assert (document["total"], document["interrupted"], len(document["mutants"])) == (8, True, 2)
    assert "Interrupted after 2 of 8 mutants: 1 caught" in ran.err


def test_the_help_says_what_is_done_by_default(cli: Callable) -> None:
    for command in ("mutate", "check"):
        words = " ".join(cli(command, "--help").out.replace("│", " ").split())
        assert "[default: (both)]" in words and "(--no-causal)" not in words
    assert f"[default: ({DEFAULT_BLOCK}; a file's own)]" in " ".join(
        cli("mutate", "--help").out.replace("│", " ").split()
    )


def test_a_kernel_that_fails_is_no_usage_error(mutate: Callable, own_kernel: Path) -> None:
    own_kernel.with_suffix(".ptx").write_text(PTX.replace("%r4, 256, %r8", "%r4, 256, %r5"))
    ran = mutate()
    assert ran.code == 1
    assert "fails as it is, so mutants say nothing." in ran.err


def test_the_default_cases_are_what_the_help_of_the_module_says() -> None:
    pairs = parse_pairs(DEFAULT_AXES["seq"])
    assert any(q % 32 and k % 16 and k > q for q, k in pairs)  # ragged, more keys
    assert any(q - k == 32 for q, k in pairs)  # whole tiles of 32 queries without a key
    assert any(q > k and (q - k) % 32 for q, k in pairs)  # a tile with some such rows
    assert any(k < 16 for _, k in pairs)  # fewer keys than a tile has
    assert any(q % 32 == 0 and k % 16 == 0 for q, k in pairs)  # nothing ragged
