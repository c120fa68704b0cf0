"""The build's own files agree with each other: workflows, lock files, prerequisites."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPT = ROOT / "scripts/prerequisites.sh"


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def pinned() -> dict[str, str]:
    """The versions of requirements-dev.lock."""
    return dict(
        re.findall(r"^([a-z0-9-]+)==(\S+)", read("requirements-dev.lock"), flags=re.MULTILINE)
    )


def test_the_lock_file_has_every_requirement() -> None:
    project = tomllib.loads(read("pyproject.toml"))
    needed = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["cli"],
        *project["dependency-groups"]["dev"],
    ]
    versions = pinned()
    assert needed
    for requirement in map(Requirement, needed):
        version = versions.get(requirement.name)
        assert version is not None, f"{requirement} is not locked: run `make lock`"
        assert version in requirement.specifier, f"{requirement}: locked is {version}"


def test_the_lock_file_pins_by_hash_and_names_no_host() -> None:
    lock = read("requirements-dev.lock")
    blocks = re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE)[1:]
    # A package may have one version for older Pythons and one for newer.
    assert {block.partition("==")[0] for block in blocks} == set(pinned())
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in lock


def test_packaged_files_are_named_from_the_root() -> None:
    # A pattern without the leading slash would match below .venv, too.
    patterns = tomllib.loads(read("Cargo.toml"))["package"]["include"]
    assert [p for p in patterns if not p.startswith("/")] == []
    for name in tomllib.loads(read("pyproject.toml"))["project"]["license-files"]:
        assert f"/{name}" in patterns


def test_actions_are_pinned_by_hash_and_alike_everywhere() -> None:
    pins = defaultdict(set)
    for path in WORKFLOWS:
        for action, pin in re.findall(r"uses: (\S+?)@(.*)$", path.read_text(), flags=re.MULTILINE):
            assert re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", pin), (
                f"{path.name}: {action}@{pin}"
            )
            pins[action].add(pin)
    assert pins
    assert all(len(found) == 1 for found in pins.values()), pins


def test_workflows_need_no_secret_and_start_without_rights() -> None:
    assert {path.name for path in WORKFLOWS} == {"ci.yml", "nightly.yml", "wheels.yml"}
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        assert "secrets." not in text, path.name
        assert re.search(r"^permissions: \{\}$", text, flags=re.MULTILINE), path.name


def test_all_green_waits_for_every_other_job() -> None:
    text = read(".github/workflows/ci.yml").partition("\njobs:\n")[2]
    jobs = set(re.findall(r"^  ([a-z-]+):$", text, flags=re.MULTILINE))
    needs = re.search(r"  all-green:.*?needs: \[([^\]]*)\]", text, flags=re.DOTALL)
    assert needs is not None
    assert set(needs[1].replace(" ", "").split(",")) == jobs - {"all-green"}


def test_wheels_are_built_by_the_locked_maturin() -> None:
    versions = set(re.findall(r"maturin-version: v(\S+)", read(".github/workflows/wheels.yml")))
    assert versions == {pinned()["maturin"]}


def test_ci_runs_every_linter() -> None:
    targets = re.search(r"^lint: (.*?) *##", read("Makefile"), flags=re.MULTILINE)
    assert targets is not None
    run = re.findall(r"^ *\"?step .* make ([a-z-]+)", read(".ci/run"), flags=re.MULTILINE)
    tests = {"test-rust", "test-python", "develop", "spark-classes", "demo", "bench-smoke"}
    assert {*targets[1].split(), *tests} == set(run)


def test_ci_runs_every_folder_of_tests() -> None:
    asked = re.findall(r"make test-python ARGS='([^']*)'", read(".ci/run"))
    words = [word for arguments in asked for word in arguments.split()]
    alone = [word for word in words if not word.startswith("-")]
    # One step runs all folders but those that have a step of their own.
    assert sorted(words) == sorted([*alone, *(f"--ignore={folder}" for folder in alone)])
    assert all((ROOT / folder).is_dir() for folder in alone)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder that is the whole PATH: with what the script itself needs, and no more."""
    for name in ("bash", "sed", "awk", "dirname"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    return tmp_path


def tool(folder: Path, name: str, answer: str) -> None:
    """A program that answers whatever it is asked with one line."""
    (folder / name).write_text(f"#!/bin/bash\necho '{answer}'\n")
    (folder / name).chmod(0o755)


def ask(folder: Path, what: str) -> tuple[int, str]:
    """Exit code of the script with only the tools in ``folder``, and all that it printed."""
    done = subprocess.run(
        [SCRIPT, what],
        env={"PATH": str(folder), "HOME": os.environ.get("HOME", "/")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("what", "name", "answer", "needed", "found"),
    [
        ("python", None, "", "Python 3.11 or newer", "none was found"),
        ("python", "python3", "3.9.2", "Python 3.11 or newer", "is 3.9.2"),
        ("rust", None, "", "Rust 1.88 or newer", "no cargo was found"),
        ("java", None, "", "a JDK 17 or newer", "no JDK was found"),
        ("java", "javac", "javac 11.0.2", "a JDK 17 or newer", "is 11.0.2"),
        ("java", "javac", "javac 17.0.15", "Maven 3.6 or newer", "none was found"),
        ("browser", None, "", "Chromium is needed", "none was found"),
    ],
)
def test_a_missing_tool_is_said_in_one_line(
    tools: Path, what: str, name: str | None, answer: str, needed: str, found: str
) -> None:
    if name is not None:
        tool(tools, name, answer)
    code, output = ask(tools, what)
    assert code == 1
    assert output.count("\n") == 1, output
    assert needed in output
    assert found in output
    assert "nstall" in output, "it says how to get it"


def test_an_old_rust_is_named(tools: Path) -> None:
    tool(tools, "cargo", "cargo 1.70.0")
    tool(tools, "rustc", "rustc 1.70.0 (90c541806 2023-05-31)")
    code, output = ask(tools, "rust")
    assert code == 1
    assert "is 1.70.0" in output
    assert "rustup update" in output


def test_enough_is_enough(tools: Path) -> None:
    tool(tools, "cargo", "cargo 1.95.0")
    tool(tools, "rustc", "rustc 1.95.0 (59807616e 2026-04-14)")
    tool(tools, "cc", "")
    tool(tools, "javac", "javac 21.0.1")
    tool(tools, "mvn", "Apache Maven 3.9.9 (8e8579a9e76f7d015ee5ec7bfcdc97d260186937)")
    tool(tools, "python3", "3.11.2")
    assert ask(tools, "rust") == (0, "")
    assert ask(tools, "java") == (0, "")
    tool(tools, "google-chrome", "")
    assert ask(tools, "browser") == (0, f"{tools / 'google-chrome'}\n")
    assert ask(tools, "python") == (0, f"{tools / 'python3'}\n")


def test_a_browser_is_installed_where_that_can_be_done(tools: Path) -> None:
    for name in ("chmod", "mktemp", "rm", "tail"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    tool(tools, "id", "0")
    tool(tools, "apt-get", "nothing is installed")
    code, output = ask(tools, "get-browser")
    assert code == 1
    assert "Chromium is needed" in output
    (tools / "apt-get").write_text(
        "#!/bin/bash\n"
        f"if [[ $1 == install ]]; then : >{tools}/chromium && chmod +x {tools}/chromium; fi\n"
    )
    code, output = ask(tools, "get-browser")
    assert code == 0
    assert output.endswith(f"{tools / 'chromium'}\n"), output
