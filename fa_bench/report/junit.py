"""Test results as JUnit XML, the form that CI systems show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from xml.etree import ElementTree as ET

#: What XML 1.0 cannot hold, not even escaped: a name from a driver or a message from a compiler may have it.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class JUnitCase:
    """One test: what it is about, what it holds, and how it ended, with one sentence where it did not pass."""

    group: str
    name: str
    state: Literal["passed", "broken", "skipped"]
    message: str = ""


def junit_xml(suite: str, cases: Sequence[JUnitCase]) -> str:
    """The file's text.

    Parameters
    ----------
    suite : str
        Name of the suite.
    cases : sequence of JUnitCase
    """
    states = Counter(case.state for case in cases)
    counts = {
        "tests": str(len(cases)),
        "failures": str(states["broken"]),
        "errors": "0",
        "skipped": str(states["skipped"]),
    }
    root = ET.Element("testsuites", counts)
    parent = ET.SubElement(root, "testsuite", {"name": _legal(suite), **counts})
    for case in cases:
        element = ET.SubElement(parent, "testcase", {"classname": _legal(case.group), "name": _legal(case.name)})
        if case.state != "passed":
            kind = "failure" if case.state == "broken" else "skipped"
            ET.SubElement(element, kind, {"message": _legal(case.message)})
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _legal(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
