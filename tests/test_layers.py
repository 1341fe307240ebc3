"""The shape of the code: imports go down the layers, modules and functions fit a reader."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "agent_runtime").rglob("*.py"))
MODULE_LINES = 400
FUNCTION_LINES = 60


def test_imports_keep_the_contracts() -> None:
    """import-linter's contracts in ``pyproject.toml`` hold; it runs apart, as it sets up logging for itself."""
    run = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_modules_are_found() -> None:
    """The other tests look at something."""
    assert len(MODULES) > 50


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_one_subject(path: Path) -> None:
    """No module is longer than 400 lines, no function longer than 60 but for its docstring."""
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES
    long = [
        f"{node.name}: {lines}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := code_lines(node)) > FUNCTION_LINES
    ]
    assert long == []


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without its docstring."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node) is not None:
        first = node.body[0]
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines
