"""The counts on a package of a few lines."""

import ast

from tests.counts import code_lines, counts, files_at, repeated_classes, touched_by

FILES = {
    "src/pkg/__init__.py": '"""A package."""\n\nfrom pkg.a import Shared, f\n\n__all__ = ["Shared", "f"]\n',
    "src/pkg/a.py": '"""A."""\n\n\ndef f():\n    """Docs."""\n    return """a\nb"""  # !\n\n\nclass Shared: ...\n',
    "src/pkg/b.py": "from . import f\n# Only b imports c.\nfrom .c import Shared\n",
    "src/pkg/c.py": "import pkg.a\n\n\nclass Shared:\n    name = 'cheb'\n",
    "src/pkg/d.py": "PATH = 'pkg.e:Late'\n",
    "src/pkg/e.py": "class Late: ...\n",
    "CONTRIBUTING.md": "| an operator | `operators/mean.py` | `from x import y` in `operators/__init__.py` |\n",
}


def test_counts() -> None:
    table = counts(FILES)
    assert table["files"] == 6
    assert table["lines"] == 5 + 10 + 3 + 5 + 1 + 1
    assert table["lines of code"] == 2 + 4 + 2 + 3 + 1 + 1
    # a has two importers: b, by the name that the package re-exports, and c. c has b; e has d, by a string.
    assert table["modules with one importer"] == 2
    assert table["class names with two meanings"] == 1
    assert table["files to touch for a new operator"] == 2
    assert table["files to touch for a new task"] == "–"
    assert table["modules that name the operator cheb or ChebConv"] == 1


def test_docstrings_and_comments_are_no_code() -> None:
    assert code_lines('"""Docs\nof two lines."""\n\n# comment\nx = 1  # code\n') == 1
    assert code_lines('x = """text\nof two lines"""\n') == 2


def test_a_class_name_with_two_meanings_is_named() -> None:
    trees = {"a": ast.parse("class Row: ..."), "b": ast.parse("class Row: ..."), "c": ast.parse("class Other: ...")}
    assert repeated_classes(trees) == {"Row": ["a", "b"]}


def test_this_package_is_counted() -> None:
    files = files_at(None)
    assert "src/geoskip/operators/monet.py" in files
    assert set(touched_by(files["CONTRIBUTING.md"])) == {"operator", "skip", "task", "data set"}
