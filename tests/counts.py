"""How large the package is, and how much of it a change touches, at any revision.

    python -m tests.counts                        the working tree
    python -m tests.counts --rev v1 --rev HEAD    revisions of git, side by side

Counted are the Python files in ``src/``:

- files and lines; code lines are those without blank lines, comments and docstrings;
- modules with one importer: a name that a package re-exports counts for the module that defines it;
- class names that several modules define;
- files and lines to touch for a new operator, skip, task or data set, as CONTRIBUTING.md tells it;
- modules that name one of the existing ones, as an identifier or a string: what a new one might have to touch.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
import tokenize
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = "CONTRIBUTING.md"
# An existing one of each kind: identifiers and strings that stand for it.
EXAMPLES = {
    "operator": {"cheb", "ChebConv"},
    "skip": {"residual", "ResidualSkip"},
    "task": {"correspondence", "Correspondence"},
    "data set": {"faust"},
}
# A row of the table in CONTRIBUTING.md: the kind, the new file, the new line, the file that it goes into.
_ROW = re.compile(r"^\| an? ([a-z ]+) \| `(.*?)` \| `(.*?)` in `(.*?)` \|$", re.MULTILINE)

# A string that names a module, or an object in it.
_PATH = re.compile(r"(\w+(?:\.\w+)+)(?::(\w+))?")


def files_at(revision: str | None) -> dict[str, str]:
    """The Python files in ``src/`` and CONTRIBUTING.md by path; of the working tree if there is no revision."""
    if revision is None:
        paths = [*sorted((ROOT / "src").rglob("*.py")), *ROOT.glob(PAGE)]
        return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = [m for m in tar if m.isfile() and re.fullmatch(rf"src/.*\.py|{re.escape(PAGE)}", m.name)]
        return {member.name: _read(tar, member) for member in members}


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = tar.extractfile(member)
    assert file is not None
    return file.read().decode()


def counts(files: Mapping[str, str]) -> dict[str, int | str]:
    """All counts by what they count; ``–`` where the page says nothing."""
    sources = {path: text for path, text in files.items() if path.endswith(".py")}
    trees = {module_name(path): ast.parse(text) for path, text in sources.items()}
    packages = {module_name(path) for path in sources if path.endswith("__init__.py")}
    table: dict[str, int | str] = {
        "files": len(sources),
        "lines": sum(len(text.splitlines()) for text in sources.values()),
        "lines of code": sum(map(code_lines, sources.values())),
        "modules with one importer": sum(len(by) == 1 for by in importers(trees, packages).values()),
        "class names with two meanings": len(repeated_classes(trees)),
    }
    touched = touched_by(files.get(PAGE, ""))
    for kind in EXAMPLES:
        table[f"files to touch for a new {kind}"] = touched.get(kind, "–")
    for kind, names in EXAMPLES.items():
        label = " or ".join(sorted(names, key=str.lower))
        table[f"modules that name the {kind} {label}"] = sum(bool(names & named_in(tree)) for tree in trees.values())
    return table


def module_name(path: str) -> str:
    """``src/geoskip/data/cache.py`` as ``geoskip.data.cache``."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def code_lines(source: str) -> int:
    """The number of lines that are not blank, a comment, or part of a docstring."""
    ignored = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
        tokenize.ENCODING,
    }  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in ignored:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(ast.parse(source)))


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def importers(trees: Mapping[str, ast.Module], packages: set[str]) -> dict[str, set[str]]:
    """The modules that import each module; packages neither count nor are counted."""
    exported = {package: dict(_imported_names(trees[package], package, True)) for package in packages}
    importing: dict[str, set[str]] = {name: set() for name in trees if name not in packages}
    for module, tree in trees.items():
        if module in packages:
            continue
        for name, origin in _imported_names(tree, module, False):
            while origin in exported and name in exported[origin]:
                origin = exported[origin][name]
            for target in (origin, f"{origin}.{name}"):
                if target in importing and target != module:
                    importing[target].add(module)
    return importing


def _imported_names(tree: ast.Module, module: str, is_package: bool) -> list[tuple[str, str]]:
    """(name, module that it is imported from), anywhere in the file; strings such as ``package.module:Name`` too."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            names += [(alias.name, base) for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [("", alias.name) for alias in node.names]
        elif isinstance(node, ast.Constant) and (path := _PATH.fullmatch(str(node.value))):
            names.append((path[2] or "", path[1]))
    return names


def repeated_classes(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """The modules that define a class of the same name, by name, where there are several."""
    defined = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(module)
    return {name: modules for name, modules in sorted(defined.items()) if len(modules) > 1}


def touched_by(page: str) -> dict[str, int]:
    """Files to write or change for a new one of each kind, as the table of CONTRIBUTING.md lists them."""
    return {kind: len({new, registry}) for kind, new, _, registry in _ROW.findall(page)}


def named_in(tree: ast.Module) -> set[str]:
    """The identifiers and the whole strings of a module."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Constant(value=str(name)):
                names.add(name)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description="Count files, lines, and what a change touches.")
    parser.add_argument("--rev", action="append", help="a revision of git; may be repeated (default: the working tree)")
    revisions = parser.parse_args().rev or [None]
    columns = [files_at(revision) for revision in revisions]
    tables = [counts(files) for files in columns]
    print("| | " + " | ".join(revision or "working tree" for revision in revisions) + " |")
    print("|---|" + "---:|" * len(revisions))
    for row in tables[0]:
        print(f"| {row} | " + " | ".join(f"{table[row]:,}" if table[row] != "–" else "–" for table in tables) + " |")
    for revision, files in zip(revisions, columns, strict=True):
        trees = {module_name(path): ast.parse(text) for path, text in files.items() if path.endswith(".py")}
        repeated = "; ".join(f"{name} ({', '.join(modules)})" for name, modules in repeated_classes(trees).items())
        print(f"\nClass names with two meanings, {revision or 'working tree'}: {repeated or 'none'}")


if __name__ == "__main__":
    main()
