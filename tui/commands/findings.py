"""Findings of the set-up, the check-up and the probe, as lines of text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from backends.setup.step import Finding

SIGNS = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "-", "pending": "○", "running": "▶"}
INDENT = f"  {'':<13} "  # below the evidence


def told(found: Iterable[Finding], as_json: bool) -> list[Finding]:
    """Prints each finding as soon as it is known; as JSON all of them in one list, at the end."""
    findings: list[Finding] = []
    for finding in found:
        findings.append(finding)
        if not as_json:
            click.echo(line(finding))
    if as_json:
        click.echo(json.dumps([finding.as_json() for finding in findings]))
    return findings


def line(finding: Finding) -> str:
    """One finding, its remedy below it when it is not ok."""
    text = f"{SIGNS[finding.verdict]} {finding.name:<13} {finding.evidence}"
    return text if finding.verdict == "ok" or not finding.remedy else f"{text}\n{INDENT}{finding.remedy}"


def whole(finding: Finding) -> str:
    """`line` with the details below."""
    return "\n".join([line(finding), *(f"{INDENT}{detail}" for detail in finding.details)])


def troubled(findings: Iterable[Finding]) -> bool:
    """Whether any needs attention."""
    return any(finding.verdict in ("warning", "failed") for finding in findings)
