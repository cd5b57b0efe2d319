"""Run LangGraph's own tests with every graph wrapped: `python -m tests.yardstick`.

The tests come with the source distribution of the LangGraph that is installed; it is fetched from
the package index once and kept in the virtual environment. Some of them depend on timing, and
some fail by themselves with newer versions of other packages. So failures are run again, alone,
and what fails then is run with bare graphs: only a test that fails wrapped each time and passes
bare counts against us.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Services that are not part of this: a database server, a cache server, a remote LangGraph.
ENOUGH = 2000
"""Of some 2,900 tests; fewer mean that the suite did not really run."""
LEFT_OUT = ("test_remote_graph.py", "test_remote_graph_v3.py", "test_prune_postgres.py")


def main() -> int:
    """0 when no test tells a wrapped graph from a bare one."""
    tests = fetch(metadata.version("langgraph"))
    files = sorted(p.name for p in (tests / "tests").glob("test_*.py") if p.name not in LEFT_OUT)
    log = run(tests, [f"tests/{name}" for name in files], wrap=True, workers=2)
    passed, failed = count(log), failures(log)
    not_collected = sorted(name for name in failed if "::" not in name)
    if passed < ENOUGH or not_collected:
        print(f"{log[-4000:]}\nonly {passed} passed; not collected: {not_collected}")
        return 1
    for _ in range(2):
        if failed:
            failed &= failures(run(tests, sorted(failed), wrap=True, workers=0))
    told_apart = failed
    if failed:
        print(f"{len(failed)} failed; are they failures of bare graphs as well?", flush=True)
        told_apart = failed - failures(run(tests, sorted(failed), wrap=False, workers=0))
    for name in sorted(told_apart):
        print(f"passes bare, fails wrapped: {name}")
    print(f"{len(failed - told_apart)} fail with bare graphs as well")
    print(f"{passed} passed, {len(told_apart)} failed")
    return 1 if told_apart else 0


def fetch(version: str) -> Path:
    """The unpacked source distribution."""
    folder = Path(sys.prefix) / "yardstick"
    unpacked = folder / f"langgraph-{version}"
    if not unpacked.exists():
        with tempfile.TemporaryDirectory() as downloads:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
            source = ["--no-binary", "langgraph", f"langgraph=={version}"]
            subprocess.run([*pip, downloads, *source], check=True)
            with tarfile.open(next(Path(downloads).glob("*.tar.gz"))) as archive:
                archive.extractall(folder, filter="data")
    return unpacked


def run(folder: Path, names: list[str], *, wrap: bool, workers: int) -> str:
    """The output of pytest."""
    environment = {
        **os.environ,
        "NO_DOCKER": "true",
        "PYTHONPATH": str(ROOT),
        "YARDSTICK_WRAP": "1" if wrap else "0",
    }
    options = ["-p", "tests_yardstick_plugin", "-o", "addopts=", "-p", "no:cacheprovider"]
    options += ["-q", "--tb=no", "-rf", *(["-n", str(workers)] if workers else [])]
    # The folder has a package `tests` of its own, so ours is not importable there by name.
    plugin = Path(__file__).with_name("plugin.py").read_text("utf-8")
    (folder / "tests_yardstick_plugin.py").write_text(plugin, "utf-8")
    command = [sys.executable, "-m", "pytest", *options, *names]
    print(f"running LangGraph's tests, {'wrapped' if wrap else 'bare'} …", flush=True)
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, check=False
    )
    return done.stdout + done.stderr


def failures(log: str) -> set[str]:
    """The ids of the tests that failed."""
    return {m[1] for m in re.finditer(r"^(?:FAILED|ERROR) (\S+)", log, re.MULTILINE)}


def count(log: str) -> int:
    """How many passed."""
    found = re.search(r"(\d+) passed", log)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    sys.exit(main())
