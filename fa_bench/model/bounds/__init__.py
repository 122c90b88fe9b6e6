"""The papers' formulas for memory accesses, in elements of one slice (one batch entry, one query head).

These are the figures that papers and articles quote. They count elements, not bytes or sectors, they know nothing
of padding, and they see no shared K/V heads. Of masks they see what a paper gives: blocks that are skipped
(:func:`mask_blocks`). What a kernel of ours really asks of memory is ``algorithm.traffic(case)``; the two stand in
different columns.

Sizes: Q is ``[seq_q, head_dim]``, K ``[seq_kv, head_dim]``, V ``[seq_kv, head_dim_v]``, O ``[seq_q, head_dim_v]``; the
papers have N for both lengths and d for both dims. M is the size of the on-chip memory *in elements*:
:func:`sram_elements` converts it. Sizes are whole numbers from 1. But for masks and :func:`regime`, arrays of int64 may
stand for them; every figure is then an array of the values that single sizes give. Counts are exact, orders and bounds
are floats.

References
----------
[1] FlashAttention (arXiv 2205.14135). [2] FlashAttention-2 (arXiv 2307.08691). [3] Saha and Ye (arXiv 2402.07443).
"""

from fa_bench.model.bounds.backward import flash1_backward, flash2_backward, standard_backward
from fa_bench.model.bounds.columns import Theory, theory
from fa_bench.model.bounds.elements import Elements, flash1_blocks, sram_elements
from fa_bench.model.bounds.forward import PARTIAL, flash1, flash2, split_kv, standard
from fa_bench.model.bounds.lower import LARGE, Regime, proved_bound, regime, saha_ye
from fa_bench.model.bounds.mask import MaskBlocks, mask_blocks
from fa_bench.model.bounds.orders import (
    flash1_proposition4,
    flash1_theorem2,
    flash1_theorem2_m_in_bytes,
    flash1_theorem5,
    standard_order,
)

__all__ = [
    "LARGE",
    "PARTIAL",
    "Elements",
    "MaskBlocks",
    "Regime",
    "Theory",
    "flash1",
    "flash1_backward",
    "flash1_blocks",
    "flash1_proposition4",
    "flash1_theorem2",
    "flash1_theorem2_m_in_bytes",
    "flash1_theorem5",
    "flash2",
    "flash2_backward",
    "mask_blocks",
    "proved_bound",
    "regime",
    "saha_ye",
    "split_kv",
    "sram_elements",
    "standard",
    "standard_backward",
    "standard_order",
    "theory",
]
