"""``fa-bench predict``: how long attention takes on GPUs that need not be here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fa_bench.cli.options import (
    CausalOption,
    ConfigOption,
    DirectionOption,
    DtypeOption,
    FeaturesOption,
    FormatOption,
    HeadDimOption,
    HiddenOption,
    KvHeadsOption,
    LayoutOption,
    QuietOption,
    TokensOption,
    WindowOption,
    file,
)
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fa_bench.model.gpu import Gpu
    from fa_bench.prediction.result import Predicted
    from fa_bench.sweep.plan import SweepRequest

#: More than any GPU's; so that infinity is none.
_HIGHEST_CLOCK_MHZ: Final = 10_000
_DEFAULT_IMPLS: Final = ("pytorch-eager", "flash-attn-2", "flash-attn-3", "flash2")


def predict(
    ctx: typer.Context,
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq",
            help="Sequence lengths: 512..16k doubles, 512..4096:512 steps, lists mix; 4kx8k for 4k queries on 8k keys.",
            metavar="AXIS",
            rich_help_panel="Shape",
            show_default="512..16k",
        ),
    ] = None,
    head_dim: HeadDimOption = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            help="Batch sizes.",
            metavar="AXIS",
            rich_help_panel="Shape",
            show_default="16k tokens, at least 1",
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            "--heads", help="Query heads.", metavar="AXIS", rich_help_panel="Shape", show_default="hidden 2048"
        ),
    ] = None,
    kv_heads: KvHeadsOption = None,
    tokens: TokensOption = None,
    hidden: HiddenOption = None,
    causal: CausalOption = None,
    window: WindowOption = None,
    features: FeaturesOption = None,
    impl: Annotated[
        str | None,
        typer.Option(
            "--impl",
            help="Implementations, or all that have a time model.",
            metavar="LIST",
            rich_help_panel="Kernel",
            show_default=",".join(_DEFAULT_IMPLS),
        ),
    ] = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    direction: DirectionOption = None,
    config: ConfigOption = None,
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu",
            help="GPUs (see fa-bench gpus), or all of the registry.",
            metavar="LIST",
            rich_help_panel="Run",
        ),
    ] = "a100-sxm-80",
    clock: Annotated[
        float | None,
        typer.Option(
            "--clock",
            min=1,
            max=_HIGHEST_CLOCK_MHZ,
            help="A locked SM clock in MHz.",
            metavar="MHZ",
            rich_help_panel="Run",
            show_default="what each generation sustains",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print how the time comes about, for the first row that has one.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", parser=file, help="Write all columns as CSV.", metavar="FILE", rich_help_panel="Output"),
    ] = None,
    fmt: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Predict how long attention takes, on GPUs that need not be here.

    Each time comes with an interval, which held nine in ten times of publications that were left out of the fit and
    eight in ten of publications since, and with the unit of the GPU that limits it. A case without a model is a row
    with the reason. Batch and heads are those of the papers, 16k tokens and a hidden size of 2048, unless given.
    """
    from fa_bench.cli.pictures import check_file, make_folder, write_text
    from fa_bench.errors import UsageError
    from fa_bench.prediction import implementations
    from fa_bench.report.export import csv_text
    from fa_bench.report.prediction import COLUMNS, flat_rows, table

    if explain and out is not None:
        raise UsageError("--explain and --out can't both be given: what is explained is one case, and no row.")
    output = Output(fmt, quiet)
    requests = list(_requests(ctx.params, config))
    impls = _impls(requests[0].impls, implementations())
    gpus = _gpus(gpu)
    if explain:
        return _explain(output, requests, impls, gpus, clock)
    if out is not None:
        make_folder(out.parent, "--out")
        check_file(out, "--out")
    rows = []
    output.start_progress()
    try:
        for row in _predicted(requests, impls, gpus, clock):
            rows.append(row)
            output.progress(f"{len(rows)} predicted; {row.gpu}, {row.case.impl}")
    finally:
        output.stop_progress()
    flat = flat_rows(rows)
    output.emit([table(rows)], flat, header=COLUMNS)
    if out is not None:
        write_text(out, csv_text(flat, COLUMNS), "--out")
        output.say(f"Wrote {out}.")
    return 0


def _requests(options: Mapping[str, Any], config: str | None) -> Iterator[SweepRequest]:
    """The axes as a request for lengths of the same batch or tokens, and one for each pair of queries and keys."""
    from dataclasses import replace

    from fa_bench.cli.axes import merge_axes, parse_pairs, sweep_request
    from fa_bench.cli.planning import GPU_TOKENS

    seq = options.get("seq")
    if seq is None or "x" not in seq:
        yield from _with_papers_sizes(sweep_request(merge_axes(options, config), "auto", None))
        return
    for queries, keys in parse_pairs(seq):
        request = sweep_request(merge_axes({**options, "seq": str(queries)}, config), "auto", None)
        if not request.batches and request.tokens is None:
            # By the longer side: a query for each of 16k tokens would have as many caches of keys.
            request = replace(request, batches=(max(1, GPU_TOKENS // max(queries, keys)),))
        for sized in _with_papers_sizes(request):
            yield replace(sized, seqs_kv=(keys,))


def _with_papers_sizes(request: SweepRequest) -> Iterator[SweepRequest]:
    """The request with the papers' batch and heads where none are given; a sequence of more tokens is alone."""
    from dataclasses import replace

    from fa_bench.cli.planning import GPU_TOKENS, with_papers_sizes

    if request.batches or request.tokens is not None or request.seqlens is not None:
        yield with_papers_sizes(request)
        return
    if short := tuple(seq for seq in request.seqs if seq <= GPU_TOKENS):
        yield with_papers_sizes(replace(request, seqs=short))
    if longer := tuple(seq for seq in request.seqs if seq > GPU_TOKENS):
        yield with_papers_sizes(replace(request, seqs=longer, batches=(1,)))


def _impls(asked: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Slugs of what was asked for, by slug or by a name under which it is published; ``all`` and ``auto`` are several.

    Raises
    ------
    UsageError
        If there is no time model of that name.
    """
    from fa_bench.errors import UsageError, nearest
    from fa_bench.published.names import impl_slug

    names: dict[str, None] = {}
    for name in asked or _DEFAULT_IMPLS:
        several = {"all": tuple(known), "auto": _DEFAULT_IMPLS}.get(name)
        try:
            found = several or (name if name in known else impl_slug(name),)
        except UsageError:
            found = (name,)
        for impl in found:
            if impl not in known:
                raise UsageError(f"There is no time model for {name!r}.", hint=nearest(name, known))
            names[impl] = None
    return tuple(names)


def _gpus(text: str) -> tuple[Gpu, ...]:
    from fa_bench.model import gpus
    from fa_bench.units import parse_list

    names = parse_list(text)
    chosen = [one for name in names for one in (gpus.all_gpus() if name == "all" else (gpus.get(name),))]
    return tuple({one.slug: one for one in chosen}.values())


def _predicted(
    requests: Sequence[SweepRequest], impls: Sequence[str], gpus: Sequence[Gpu], clock: float | None
) -> Iterator[Predicted]:
    """Every case on every GPU, GPU by GPU."""
    from fa_bench.errors import Unsupported
    from fa_bench.prediction import predict_time
    from fa_bench.prediction.result import Predicted

    cases = [case for request in requests for case in request.cases(impls)]
    for gpu in gpus:
        for case in cases:
            try:
                yield Predicted(gpu.slug, case, predict_time(case, gpu, clock_mhz=clock))
            except Unsupported as error:
                yield Predicted(gpu.slug, case, None, error.message)


def _explain(
    output: Output, requests: Sequence[SweepRequest], impls: Sequence[str], gpus: Sequence[Gpu], clock: float | None
) -> int:
    from fa_bench.model import gpus as registry
    from fa_bench.prediction.explain import explain
    from fa_bench.report.names import case_name

    row = None
    for row in _predicted(requests, impls, gpus, clock):
        if row.time is not None:
            name = case_name(row.case)
            text = explain(row.case, registry.get(row.gpu), row.time)
            if output.fmt is Format.TABLE:
                output.write(f"{name.impl} on {row.gpu}, {name.shape()}\n{text}\n")
            else:
                output.emit([], [{"gpu": row.gpu, "name": f"{name.impl}, {name.shape()}", "explanation": text}])
            return 0
    output.warn(row.reason if row is not None else "There is nothing to explain.")
    return 1
