"""The package as users get it: built, installed into an empty environment, used away from the checkout."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USE = """
from pathlib import Path
import agent_runtime, agent_runtime.vectors
from agent_runtime import Runtime, Tool, ToolContract
assert "site-packages" in agent_runtime.__file__, agent_runtime.__file__
assert agent_runtime.vectors.load()
assert (Path(agent_runtime.__file__).parent / "py.typed").exists()
with Runtime("sqlite:///installed.db", tools=[]) as runtime, runtime.open("first") as session:
    assert session.record("answer", lambda: 42) == 42
print("installed and used")
"""


@pytest.mark.acceptance
@pytest.mark.timeout(180)
def test_the_installed_package_opens_a_ledger_away_from_the_checkout(tmp_path: Path):
    """`python -m pip install .` brings everything that a first session needs: migrations, vectors, typing."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True, cwd=tmp_path)
    done = subprocess.run([python, "-W", "error", "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "installed and used", done.stderr
