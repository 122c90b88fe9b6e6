"""Tables, a page, flat rows and a document of judged claims, in English or Chinese."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from fa_bench.claims.claim import Judged, Language, Text
from fa_bench.claims.result import Check, Judgement
from fa_bench.report.tables import Column, Table

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1

_VERDICTS: Final = {
    "holds": Text("holds", "成立"),
    "holds-if": Text("holds if", "有条件成立"),
    "does-not-hold": Text("does not hold", "不成立"),
    "not-tested": Text("not tested", "未检验"),
}
_LACKING: Final = {
    "torch": Text("a part was not tested: needs PyTorch", "有一部分未检验：需要 PyTorch"),
    "compiler": Text(
        "a part was not tested: needs NVRTC, or kernels that come compiled",
        "有一部分未检验：需要 NVRTC 或随附的已编译内核",
    ),
}
_WORDS: Final = {
    "statement": Text("statement", "说法"),
    "verdict": Text("verdict", "结论"),
    "right": Text("right form", "正确形式"),
    "alone": Text("the same alone", "单独复现"),
    "decisive": Text("the figure that decides", "决定性的数值"),
    "figure": Text("figure", "数值"),
    "value": Text("value", "值"),
    "how": Text("how it was computed", "如何得出"),
    "reading": Text("reading", "解读"),
    "asked": Text("asked", "要求"),
    "title": Text("Statements about FlashAttention that are often made", "关于 FlashAttention 的常见说法"),
    "meant": Text(" this is meant: ", "，当所指为："),
    "note": Text(
        "Computed just now. `fa-bench claims LETTER --explain` shows every figure and the right form.",
        "以上均为即时计算。`fa-bench claims LETTER --explain --lang zh` 给出每个数值和正确形式。",
    ),
    "intro": Text(
        "`fa-bench claims --explain --format md --lang both` writes this page. It computes every figure anew, by "
        "formulas, in float64, and by kernels that run in the emulator. A verdict follows from the bounds that each "
        "reading of a statement puts on figures: it holds if all readings do, holds if one of some is meant, or does "
        "not hold. Where nothing else is said, N = 4096, d = 64, fp16, one head, an A100; *model*, *emulated* and "
        "*global* bytes are explained in [cli.md](cli.md).",
        "本页由 `fa-bench claims --explain --format md --lang both` 写出。每个数值都重新计算：来自公式、float64，"
        "以及在模拟器中运行的内核。结论取决于每种解读对数值所要求的界限：所有解读都成立则成立，只有部分解读成立则有条件成立，"
        "否则不成立。未另作说明时为 N = 4096，d = 64，fp16，一个头，A100；*model*、*emulated* 和 *global* 字节见 "
        "[cli.md](cli.md)。",
    ),
}
_DOES: Final = {True: Text("holds", "成立"), False: Text("does not", "不成立")}
_AND: Final = Text("; ", "；")
_STOP: Final = Text(".", "。")
_NAMES: Final[dict[Language, str]] = {"en": "English", "zh": "中文"}


def _word(name: str, language: Language) -> str:
    return _WORDS[name].in_(language)


def overview(judged: Sequence[Judged], language: Language) -> Table:
    """A row per claim."""
    rows = tuple(
        (
            each.claim.letter,
            each.claim.words.short.in_(language),
            _VERDICTS[each.judgement.verdict].in_(language),
            each.claim.words.filled(each.claim.words.decisive, language, each.judgement),
        )
        for each in judged
    )
    columns = (Column(""), *(Column(_word(name, language)) for name in ("statement", "verdict", "decisive")))
    lacking = [
        f"{each.claim.letter}: {_LACKING[lack].in_(language)}{_STOP.in_(language)}"
        for each in judged
        for lack in each.judgement.lacking
    ]
    return Table(_word("title", language), columns, rows, " ".join((_word("note", language), *lacking)))


def explained(each: Judged, language: Language) -> list[Table]:
    """One claim: what is said and what is right, every figure, every reading."""
    words = [(_word(name, language), text) for name, text in _said(each, language).items()]
    return [
        Table("", (Column(f"({each.claim.letter})"), Column(each.claim.words.slug)), tuple(words)),
        _figures(each, language),
        _readings(each, language),
    ]


def _said(each: Judged, language: Language) -> dict[str, str]:
    said = each.claim.words
    return {
        "statement": said.statement.in_(language),
        "verdict": verdict_sentence(each, language),
        "right": said.filled(said.right, language, each.judgement),
        "alone": _AND.in_(language).join(each.claim.commands),
    }


def _figures(each: Judged, language: Language) -> Table:
    said = each.claim.words.figures
    rows = tuple((said[f.name].in_(language), f.text, f.how) for f in each.judgement.figures)
    columns = (
        Column(_word("figure", language)),
        Column(_word("value", language), "right"),
        Column(_word("how", language)),
    )
    return Table("", columns, rows)


def _readings(each: Judged, language: Language) -> Table:
    said = each.claim.words.checks
    rows = tuple(
        (
            said[check.name].in_(language),
            ", ".join(figure.text for figure in check.figures),
            check.bounds,
            _DOES[check.passed].in_(language),
        )
        for check in each.judgement.checks
    )
    columns = (
        Column(_word("reading", language)),
        Column(_word("value", language), "right"),
        Column(_word("asked", language)),
        Column(""),
    )
    return Table("", columns, rows)


def verdict_sentence(each: Judged, language: Language) -> str:
    """The verdict; if some readings hold and others don't, which do; and what could not be tested."""
    judgement, stop = each.judgement, _STOP.in_(language)
    sentence = _capital(_VERDICTS[judgement.verdict].in_(language))
    if judgement.verdict == "holds-if":
        passed = [each.claim.words.checks[check.name].in_(language) for check in judgement.checks if check.passed]
        sentence += _word("meant", language) + _AND.in_(language).join(passed)
    return " ".join((sentence + stop, *(_capital(_LACKING[lack].in_(language)) + stop for lack in judgement.lacking)))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def page(judged: Sequence[Judged], languages: Sequence[Language]) -> str:
    """All that is known of the claims as a Markdown page: in each language the overview, then claim by claim."""
    parts = [f"# {_word('title', languages[0])}"]
    for language in languages:
        table = overview(judged, language)
        parts += [f"## {_NAMES[language]}"] if len(languages) > 1 else []
        parts += [_word("intro", language), Table("", table.columns, table.rows).markdown()]
    for each in judged:
        parts.append(f"## ({each.claim.letter}) {each.claim.words.slug}")
        for language in languages:
            said = _said(each, language)
            parts.append(f"**{said['statement']}**")
            parts.append(f"*{said['verdict']}* {said['right']}")
            parts += [_readings(each, language).markdown(), _figures(each, language).markdown()]
        parts.append(" · ".join(f"`{command}`" for command in each.claim.commands))
    return "\n\n".join(parts) + "\n"


def flat_rows(judged: Iterable[Judged], language: Language) -> list[dict[str, object]]:
    """A row per claim and figure, with the bounds that it has to keep."""
    return [
        {
            "language": language,
            "claim": each.claim.letter,
            "slug": each.claim.words.slug,
            "verdict": each.judgement.verdict,
            "figure": figure.name,
            "value": figure.value,
            "unit": figure.unit,
            "text": figure.text,
            "what": each.claim.words.figures[figure.name].in_(language),
            "how": figure.how,
            **_bounds(each.judgement, figure.name),
        }
        for each in judged
        for figure in each.judgement.figures
    ]


def _bounds(judgement: Judgement, figure: str) -> dict[str, object]:
    check = next((check for check in judgement.checks if figure in [asked.name for asked in check.figures]), None)
    if check is None:
        return dict.fromkeys(("reading", "low", "high", "passed"))
    return {"reading": check.name, "low": check.low, "high": check.high, "passed": check.passed}


def document(judged: Iterable[Judged], language: Language) -> list[dict[str, Any]]:
    """All claims in one language, for JSON."""
    return [
        {
            "language": language,
            "claim": each.claim.letter,
            "slug": each.claim.words.slug,
            "statement": each.claim.words.statement.in_(language),
            "verdict": each.judgement.verdict,
            "verdict_text": verdict_sentence(each, language),
            "decisive": each.claim.words.filled(each.claim.words.decisive, language, each.judgement),
            "right": each.claim.words.filled(each.claim.words.right, language, each.judgement),
            "commands": list(each.claim.commands),
            "not_tested": list(each.judgement.lacking),
            "figures": [
                {"figure": f.name, "value": f.value, "unit": f.unit, "text": f.text, "how": f.how}
                | {"what": each.claim.words.figures[f.name].in_(language)}
                for f in each.judgement.figures
            ],
            "readings": [_reading(each, check, language) for check in each.judgement.checks],
        }
        for each in judged
    ]


def _reading(each: Judged, check: Check, language: Language) -> dict[str, Any]:
    return {
        "reading": check.name,
        "what": each.claim.words.checks[check.name].in_(language),
        "figures": [figure.name for figure in check.figures],
        "low": check.low,
        "high": check.high,
        "passed": check.passed,
    }
