"""Nsight Compute's CSV: locales, units, shapes, and cells without a number. All samples are written by us."""

from __future__ import annotations

import pytest

from fa_bench.measure.ncu_csv import kernel_rows

READ, WRITE, SECTORS = "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex_op_read.sum"
#: Columns before the metrics, in versions of different years.
LEAD_2024 = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC"'
)
LEAD_2020 = '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream"'
ROW_2024 = '"0","4711","python3","127.0.0.1","flash2_fwd","1","7","(128, 1, 1)","(16, 1, 1)","0","8.0"'


def wide(value: str, unit: str = "byte", other: str = "1") -> str:
    """A table of one launch with two metrics."""
    units = ",".join(['""'] * 11)
    return f'{LEAD_2024},"{READ}","{WRITE}"\n{units},"{unit}","byte"\n{ROW_2024},"{value}","{other}"\n'


def read(text: str, metric: str = READ) -> int | None:
    (row,) = kernel_rows(text, [READ, WRITE, SECTORS])
    return row.counts[metric]


@pytest.mark.parametrize(
    "value",
    [
        "6302976",
        "6,302,976",
        "6.302.976",
        "6 302 976",
        "6\u202f302\u202f976",
        "6\u00a0302\u00a0976",
        "6'302'976",
        "6’302’976",
    ],
)
def test_thousands_separators_of_every_locale_are_the_same_number(value: str) -> None:
    assert read(wide(value)) == 6_302_976


@pytest.mark.parametrize("value", ["27.595", "27,595"])
def test_a_lone_separator_before_three_digits_groups_a_count_in_base_units(value: str) -> None:
    # There is no fraction of a byte.
    assert read(wide(value)) == 27_595


@pytest.mark.parametrize(
    ("value", "unit", "other", "expected"),
    [
        ("6.30", "Mbyte", "1", 6_300_000),
        ("6,302.976", "Kbyte", "1", 6_302_976),
        ("6.302,976", "Kbyte", "1", 6_302_976),
        ("1.5", "Gbyte", "1", 1_500_000_000),
        # The table's other cell says that a dot groups here, so the comma is decimal.
        ("6,30", "Mbyte", "27.595.520", 6_300_000),
        ("196.843", "Ksector", "1", 196_843),
    ],
)
def test_scaled_units_count_what_they_say(value: str, unit: str, other: str, expected: int) -> None:
    assert read(wide(value, unit, other)) == expected


@pytest.mark.parametrize("value", ["n/a", "N/A", "[N/A]", "", "nan", "inf", "-1", "no data", "12.5", "1.2.3,4,5"])
def test_a_cell_without_a_count_is_not_known_and_never_zero(value: str) -> None:
    assert read(wide(value)) is None
    assert read(wide(value), WRITE) == 1


def test_a_true_zero_stays_zero() -> None:
    assert read(wide("0")) == 0


def test_a_unit_that_is_not_known_gives_no_figure() -> None:
    assert read(wide("5", "parsec")) is None


def test_a_column_that_is_not_there_is_not_in_the_counts() -> None:
    (row,) = kernel_rows(wide("5"), [READ, SECTORS])
    assert row.counts == {READ: 5}


def test_the_address_of_the_host_does_not_decide_the_separators() -> None:
    # 127.0.0.1 repeats the dot as a number with grouped thousands would.
    assert read(wide("6.30", "Mbyte")) == 6_300_000


def test_a_row_per_metric_is_read_like_a_column_per_metric() -> None:
    lead = f'{LEAD_2024},"Section Name","Metric Name","Metric Unit","Metric Value"'
    metric = '"Command line profiler metrics","{}","{}","{}"'
    text = "\n".join(
        [
            lead,
            f"{ROW_2024},{metric.format(READ, 'byte', '6,302,976')}",
            f"{ROW_2024},{metric.format(SECTORS, 'sector', '196,843')}",
            f"{ROW_2024},{metric.format('gpu__time_duration.sum', 'ns', '9.5')}",
            f"{ROW_2024.replace('0', '1', 1)},{metric.format(READ, 'byte', 'n/a')}",
        ]
    )
    first, second = kernel_rows(text, [READ, SECTORS])
    assert first.counts == {READ: 6_302_976, SECTORS: 196_843}
    assert second.counts == {READ: None}


def test_columns_are_found_by_name_in_any_version() -> None:
    nothing = '"",'
    old = f'{LEAD_2020},"{READ}"\n{nothing * 8}"byte"\n' + (
        '"0","1","p","h","k(int, float *)","2020-May-29 12:02:46","1","7","42"\n'
    )
    ranges = '"thread Domain:Push/Pop_Range:PL_Type"'
    new = f'{LEAD_2024},{ranges},"{READ}"\n{nothing * 12}"byte"\n{ROW_2024},"a ""b"", c","42"\n'
    for text, name in ((old, "k(int, float *)"), (new, "flash2_fwd")):
        (row,) = kernel_rows(text, [READ])
        assert (row.name, row.counts) == (name, {READ: 42})


def test_lines_of_ncu_and_of_the_program_are_no_rows() -> None:
    text = (
        '==PROF== Connected to process 4711\n"a","b"\nsome, words\n'
        + wide("7")
        + "==PROF== Disconnected from process 4711\n1,2\n==WARNING== Some metrics\n"
    )
    assert read(text) == 7


def test_launches_keep_their_order_and_tables_of_two_processes_add_up() -> None:
    second = wide("9").replace("flash2_fwd", "other")
    assert [(row.name, row.counts[READ]) for row in kernel_rows(wide("7") + second, [READ])] == [
        ("flash2_fwd", 7),
        ("other", 9),
    ]


def test_no_table_is_no_launch() -> None:
    assert kernel_rows("==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. k(int, int)\n", [READ]) == []
