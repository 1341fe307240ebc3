"""The shape of the code: imports go down the layers, modules and functions fit a reader."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from importlinter.api import read_configuration  # noqa: F401  the linter must be there, or the contracts are not held
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "agent_runtime").rglob("*.py"))
MODULE_LINES = 400
FUNCTION_LINES = 60


def test_imports_keep_the_contracts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """import-linter's contracts in ``pyproject.toml`` hold."""
    monkeypatch.chdir(ROOT)
    broken = lint_imports(config_filename="pyproject.toml", cache_dir=None)
    assert broken == 0, capsys.readouterr().out


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
