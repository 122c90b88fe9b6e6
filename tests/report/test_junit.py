"""JUnit XML is XML, whatever a name holds."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from fa_bench.report.junit import JUnitCase, junit_xml


def test_cases_and_their_counts() -> None:
    text = junit_xml(
        "suite",
        [
            JUnitCase("flash2, 4k", "bytes:0", "passed"),
            JUnitCase("flash2, 4k", "slower:2%", "broken", "10 % slower"),
            JUnitCase("flash2, 8k", "slower:2%", "skipped", "ambiguous"),
        ],
    )
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    (suite,) = root
    counts = {"tests": "3", "failures": "1", "errors": "0", "skipped": "1"}
    assert root.attrib == counts
    assert suite.attrib == {"name": "suite", **counts}
    assert [(case.get("classname"), case.get("name"), [child.tag for child in case]) for case in suite] == [
        ("flash2, 4k", "bytes:0", []),
        ("flash2, 4k", "slower:2%", ["failure"]),
        ("flash2, 8k", "slower:2%", ["skipped"]),
    ]
    assert [child.get("message") for case in suite for child in case] == ["10 % slower", "ambiguous"]


def test_what_xml_cannot_hold_is_replaced_and_the_rest_kept() -> None:
    name = "<&\"'>\x00\x1b[31m\ud800\ufffe µ🙂 a\tb\nc"
    (suite,) = ET.fromstring(junit_xml(name, [JUnitCase(name, name, "broken", name)]).encode())
    # XML itself turns a tab or a line end inside an attribute into a space unless it is escaped.
    kept = {
        " ".join((text or "").split()) for text in (suite.get("name"), suite[0].get("name"), suite[0][0].get("message"))
    }
    assert kept == {"<&\"'>��[31m�� µ🙂 a b c"}
