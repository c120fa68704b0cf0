"""A skipped test is counted and named at the end; in CI an unexpected one is a failure.

A skip gives its reason as ``[tag] what is missing and how to get it``. With
``MQSTORE_STRICT_SKIPS=1`` the run fails on each skip that ``MQSTORE_ALLOW_SKIP`` does not name:
names are separated by commas or spaces, and each is a tag, a file, or a test's id with or without
its parameters. A test expected to fail counts as skipped: neither says that something works.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

# An assertion in a helper shows its values, as in a test.
pytest.register_assert_rewrite("helpers")


class Skip(NamedTuple):
    """A test, or a file, that did not run."""

    node_id: str
    reason: str

    @property
    def tag(self) -> str:
        """The name at the start of the reason, ``untagged`` if it has none."""
        match = re.match(r"\[([a-z0-9-]+)\]", self.reason)
        return match.group(1) if match else "untagged"

    @property
    def test(self) -> str:
        """The test's id without its parameters."""
        return self.node_id.partition("[")[0]

    def is_named_in(self, names: set[str]) -> bool:
        """Whether one of ``names`` is this skip's tag, test or file."""
        return not names.isdisjoint(
            {self.tag, self.node_id, self.test, self.node_id.partition("::")[0]} - {"untagged"}
        )


class SkipRule:
    """Collects the skips of a run, names them, and fails a strict run on the unexpected."""

    def __init__(self, *, strict: bool, allowed: set[str]) -> None:
        self.strict = strict
        self.allowed = allowed
        self.skips: list[Skip] = []

    @property
    def unexpected(self) -> list[Skip]:
        """The skips that fail the run."""
        return [s for s in self.skips if self.strict and not s.is_named_in(self.allowed)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        if hasattr(report, "wasxfail"):
            reason = f"expected to fail: {report.wasxfail}"
        else:
            # (file, line, "Skipped: reason")
            reason = str(
                report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            )
        self.skips.append(Skip(report.nodeid, reason.removeprefix("Skipped: ")))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        harmless = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self.unexpected and session.exitstatus in harmless:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.skips:
            terminalreporter.write_line("skipped: none")
            return
        terminalreporter.section(f"skipped: {len(self.skips)}")
        for (test, reason), count in Counter((s.test, s.reason) for s in self.skips).items():
            times = f" ({count} times)" if count > 1 else ""
            terminalreporter.write_line(f"{test}{times}: {reason}")
        for skip in self.unexpected:
            terminalreporter.write_line(
                f"not allowed here: {skip.node_id} (MQSTORE_ALLOW_SKIP does not name {skip.tag})",
                red=True,
            )


# Sessions of tests live for seconds: the second compiler of the JVM costs more than it gives.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_CLASSES = Path(__file__).parents[1] / ".venv/.made/spark-classes.jsa"
"""Made by ``make spark-classes``; a JVM that cannot use it would say so in its output."""


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JVM)
    mapped = f" -XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:disable -Xlog:all=off"
    options = QUICK_JVM + (mapped if SPARK_CLASSES.exists() else "")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    config.pluginmanager.register(
        SkipRule(
            strict=os.environ.get("MQSTORE_STRICT_SKIPS", "") not in ("", "0"),
            allowed=set(re.split(r"[,\s]+", os.environ.get("MQSTORE_ALLOW_SKIP", ""))) - {""},
        ),
        "mqstore-skip-rule",
    )
