"""Style and types, as `make lint` checks them; here they run beside the other tests."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("tool", [["ruff", "check", "."], pytest.param(["mypy"], marks=pytest.mark.slow)], ids=["ruff", "mypy"])
def test_it_has_nothing_to_say(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_reader_of_json_or_toml_expects_deep_nesting() -> None:
    """Both parsers raise RecursionError, which is not a ValueError, for some thousand brackets."""
    forgotten = []
    for path in (ROOT / "course_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Try) and any(_reads(part) for statement in node.body for part in ast.walk(statement)):
                caught = {name.id for one in node.handlers for name in ast.walk(one.type or one) if isinstance(name, ast.Name)}
                if "ValueError" in caught and "RecursionError" not in caught:
                    forgotten.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert forgotten == []


def _reads(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(function, ast.Attribute)
        and function.attr in ("load", "loads")
        and isinstance(function.value, ast.Name)
        and function.value.id in ("json", "tomllib", "toml_text")
    )
