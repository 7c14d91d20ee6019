#!/usr/bin/env python3
"""Checks the Python sources by pyflakes, and the package dsrun for type hints and docstrings.

pyflakes finds undefined names, names imported or assigned and never used, and the like. Its part is left out, with a
line that says so, where it is not installed (Debian's pyflakes3). A line with "# noqa" is left out.

Every public name of runtime/python/dsrun (module, class, function, method or property without a leading underscore, in
public classes) has a docstring, and its parameters and result have type hints; of __init__, the parameters have them.

    scripts/check_python.py          exit status 1 when it finds anything
"""

import ast
import re
import shutil
import subprocess
import sys

from tracked import ROOT, tracked

PROGRAMS = ("pyflakes3", "pyflakes")
PACKAGE = "runtime/python/dsrun"
FOUND = re.compile(r"^(?P<path>[^:]+):(?P<line>\d+):(\d+:)? ")


def is_left_out(finding):
    match = FOUND.match(finding)
    if match is None:  # the next line of a syntax error
        return False
    lines = (ROOT / match["path"]).read_text(encoding="utf-8").splitlines()
    return "# noqa" in lines[int(match["line"]) - 1] if int(match["line"]) <= len(lines) else False


def run_pyflakes():
    """What pyflakes finds, line by line."""
    program = next(filter(shutil.which, PROGRAMS), None)
    if program is None:
        print("check_python: pyflakes3 is not installed, its part is left out")
        return []
    run = subprocess.run([program, *tracked("*.py")], cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in (run.stdout + run.stderr).splitlines() if not is_left_out(line)]


def list_public(body, cls=None):
    """The public functions and classes of a module's or a class's body: (qualified name, node, whether a method)."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from list_public([*node.body, *getattr(node, "orelse", [])], cls)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node, False
            yield from list_public(node.body, node.name)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not node.name.startswith("_") or (cls and node.name == "__init__"):
                yield f"{cls}.{node.name}" if cls else node.name, node, cls is not None


def missing_hints(node, is_method):
    """The parameters of a function without a type hint, and "the result"."""
    arguments = node.args
    is_static = any(getattr(decorator, "id", "") == "staticmethod" for decorator in node.decorator_list)
    parameters = [*arguments.posonlyargs, *arguments.args][int(is_method and not is_static):]
    parameters += [*arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))]
    missing = [parameter.arg for parameter in parameters if parameter.annotation is None]
    return missing + ["the result"] * (node.returns is None and node.name != "__init__")


def check_package():
    """Public names of the package without a docstring or with parameters without a type hint."""
    for path in tracked(f"{PACKAGE}/*.py"):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        for name, node, is_method in [("the module", tree, False), *list_public(tree.body)]:
            place = f"{path}:{getattr(node, 'lineno', 1)}: {name}"
            if getattr(node, "name", "") != "__init__" and ast.get_docstring(node) is None:
                yield f"{place} has no docstring"
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for missing in missing_hints(node, is_method):
                    yield f"{place}: {missing} has no type hint"


def main():
    findings = [*run_pyflakes(), *check_package()]
    for finding in findings:
        print(finding)
    print(f"check_python: {len(findings)} lines to fix" if findings else "check_python: ok")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
