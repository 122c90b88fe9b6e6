"""``fa-bench claims``: formats, languages, names; docs/claims.md is what it writes. Figures: tests/claims."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer.main import get_command

from fa_bench.claims import registry
from fa_bench.claims.claim import Claim, Judged, words
from fa_bench.claims.result import Judgement
from fa_bench.cli.app import app
from fa_bench.compiler import nvrtc_available
from fa_bench.report.claims import page

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "claims.md"


@pytest.fixture(scope="module")
def judgements() -> dict[str, Judgement]:
    """All claims, judged once."""
    return {each.claim.letter: each.judgement for each in registry.judge(registry.letters())}


@pytest.fixture
def once(judgements: dict[str, Judgement], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command have them."""
    monkeypatch.setattr(registry, "judge_of", lambda letter: lambda: judgements[letter])


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("lang", ["en", "zh", "both"])
@pytest.mark.parametrize("explain", [(), ("--explain",)])
def test_tables_fit_80_columns_in_both_languages(lang: str, explain: tuple[str, ...], cli: Callable) -> None:
    ran = cli("claims", "--lang", lang, *explain)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(cell_len, ran.out.splitlines())) <= 80


@pytest.mark.usefixtures("once")
def test_every_claim_has_a_row_and_a_verdict(cli: Callable) -> None:
    out = cli("claims").out
    for letter in registry.letters():
        assert len(re.findall(rf"(?m)^{letter} .* (holds|holds if|does not hold) ", out)) == 1


def test_the_verdicts(judgements: dict[str, Judgement]) -> None:
    """What each claim's own test says of it, side by side."""
    if "compiler" in {lack for judgement in judgements.values() for lack in judgement.lacking}:
        pytest.skip("There is no compiler here.")
    by_verdict: dict[str, str] = {}
    for letter, judgement in judgements.items():
        by_verdict[judgement.verdict] = by_verdict.get(judgement.verdict, "") + letter
    assert by_verdict == {"holds": "qrt", "holds-if": "adehlmopsu", "does-not-hold": "bcfgijkn"}


def test_every_figure_and_reading_has_words_in_both_languages(judgements: dict[str, Judgement]) -> None:
    assert list(words()) == list(registry.letters())
    for letter, judgement in judgements.items():
        said = words()[letter]
        if not judgement.lacking:
            assert set(said.figures) == {figure.name for figure in judgement.figures}
            assert set(said.checks) == {check.name for check in judgement.checks}
        texts = [said.statement, said.short, said.decisive, said.right, *said.figures.values(), *said.checks.values()]
        assert all(text.en and text.zh for text in texts)
        assert all(re.search("[一-鿿]", text.zh) for text in (said.statement, said.right))
        assert not any(re.search("[一-鿿]", text.en) for text in texts)
        # The same figures stand in both languages.
        for text in (said.decisive, said.right):
            assert set(re.findall(r"\{(\w+)\}", text.en)) == set(re.findall(r"\{(\w+)\}", text.zh))


def test_a_claim_by_letter_or_by_name(cli: Callable) -> None:
    assert cli("claims", "o").out == cli("claims", "on-chip-memory").out
    rows = list(csv.DictReader(io.StringIO(cli("claims", "g", "A", "--format", "csv").out)))
    assert list(dict.fromkeys(row["claim"] for row in rows)) == ["a", "g"]


def test_an_unknown_claim_is_a_usage_error(cli: Callable) -> None:
    ran = cli("claims", "best-tiles")
    assert (ran.code, ran.out) == (2, "")
    assert "There is no claim 'best-tiles'." in ran.err
    assert "Did you mean 'best-tile'?" in ran.err


def test_it_says_which_reading_holds(cli: Callable) -> None:
    out = " ".join(cli("claims", "h", "--explain").out.split())
    assert "Holds if this is meant: m and l; O of a single block." in out
    assert (
        "有条件成立，当所指为：m 和 l；只有一个块时的 O。" in cli("claims", "h", "--format", "json", "--lang", "zh").out
    )


def test_csv_and_json(cli: Callable) -> None:
    """41943040 KiB of HBM over 108 SMs of 192 KiB: 2022.7, more than 1.5 times a thousand."""
    rows = list(csv.DictReader(io.StringIO(cli("claims", "o", "--format", "csv").out)))
    row = next(row for row in rows if row["figure"] == "capacity_all_40")
    assert float(row["value"]) == 41_943_040 / (108 * 192)
    assert (row["unit"], row["text"], row["passed"], row["verdict"]) == ("count", "2,023", "false", "holds-if")
    assert (float(row["low"]), float(row["high"])) == pytest.approx((1000 / 1.5, 1500))
    unbound = next(row for row in rows if row["figure"] == "rate_one")
    assert (unbound["reading"], unbound["passed"]) == ("", "")
    document = json.loads(cli("claims", "o", "--format", "json", "--lang", "both").out)
    assert document["schema"] == 1
    assert [claim["language"] for claim in document["claims"]] == ["en", "zh"]
    (claim, chinese) = document["claims"]
    assert claim["commands"][0] == "fa-bench claims o"
    assert claim["readings"][0] == {
        "reading": "bandwidth_all_40",
        "what": "bandwidth of all SMs, 40 GB",
        "figures": ["bandwidth_all_40"],
        "low": 10.0,
        "high": None,
        "passed": True,
    }
    assert [figure["value"] for figure in claim["figures"]] == [figure["value"] for figure in chinese["figures"]]


@pytest.mark.parametrize("letter", registry.letters())
def test_each_command_that_is_named_is_understood(letter: str, cli: Callable) -> None:
    group: Any = get_command(app)
    first, *others = Claim(letter, words()[letter]).commands
    assert first == f"fa-bench claims {letter}"
    for command in others:
        name, *args = shlex.split(command.removeprefix("fa-bench "))
        group.commands[name].make_context(name, list(args))
        if {"--no-measure", "--dry-run"} & set(args) or name in ("gpus", "predict"):
            assert cli(name, *args).code == 0, command


@pytest.mark.usefixtures("once")
def test_the_page_is_what_the_command_writes(judgements: dict[str, Judgement], cli: Callable) -> None:
    """Where a part can't be tested, and with another compiler for what is counted, the rest is compared."""
    lacking = {letter for letter, judgement in judgements.items() if judgement.lacking}
    if nvrtc_available() is None:
        from fa_bench.nvrtc import load

        # Instructions and wavefronts are the compiler's.
        lacking |= set() if f"NVRTC {load().version}" in DOCUMENT.read_text(encoding="utf-8") else {"q", "r"}
    written = _sections(cli("claims", "--explain", "--format", "md", "--lang", "both").out)
    committed = _sections(DOCUMENT.read_text(encoding="utf-8"))
    assert list(written) == list(committed)
    for heading, text in committed.items():
        if not any(heading.startswith(f"({letter})") for letter in lacking) and not (lacking and heading[0] != "("):
            assert written[heading] == text, "run python scripts/claims_docs.py"


def _sections(text: str) -> dict[str, str]:
    """Heading -> what stands below it."""
    parts = re.split(r"(?m)^## (.*)$", text)
    return {"title": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_what_could_not_be_tested_is_said() -> None:
    """A judgement without its torch part, on a page of its own."""
    judgement = registry.judge_of("a")()
    part = Judgement(judgement.figures[:1], judgement.checks[:1], ("torch",))
    text = page([Judged(Claim("a", words()["a"]), part)], ("en", "zh"))
    assert "*Holds if this is meant: one of them in fp32, one head. A part was not tested: needs PyTorch.*" in text
    assert "*有条件成立，当所指为：一个矩阵，fp32，一个头。 有一部分未检验：需要 PyTorch。*" in text
    assert "Of one head: - in fp16, 67.11 MB in fp32" in text
    none = Judgement((), (), ("compiler",))
    assert "*Not tested. A part was not tested: needs NVRTC" in page([Judged(Claim("a", words()["a"]), none)], ("en",))
