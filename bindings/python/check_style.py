# SPDX-License-Identifier: MIT
"""Prints where a Python file of this folder breaks the project's style, and exits 1: SPDX line,
lines of at most 100 columns, files of at most 800 lines, functions of at most 60 lines without
their docstring, spaces alone."""
import ast
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def lines_of(function):
    first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else \
        function.body[0]
    return function.end_lineno - first.lineno + 1


def faults(path):
    text = path.read_text()
    lines = text.splitlines()
    if not lines or "SPDX-License-Identifier: MIT" not in lines[0]:
        yield 1, "no SPDX line at the top"
    if len(lines) > 800:
        yield 800, f"{len(lines)} lines"
    for number, line in enumerate(lines, 1):
        if len(line) > 100 or "\t" in line or line != line.rstrip():
            yield number, "wider than 100 columns, a tab, or a space at the end"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and lines_of(node) > 60:
            yield node.lineno, f"{node.name} has {lines_of(node)} lines"


found = [f"{path.relative_to(HERE)}:{line}: {fault}" for path in sorted(HERE.rglob("*.py"))
         if path.name != "_abi.py" for line, fault in faults(path)]
print("\n".join(found) or "Python: style holds")
sys.exit(bool(found))
