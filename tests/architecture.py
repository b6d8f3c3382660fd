"""Checks of source text: which way imports point, what is imported eagerly, how long files are.

Functions of strings, so that the tests can plant a fault and see it found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Imports point up this list.
LAYERS = (
    "shapes",
    "arguments",
    "records",
    "kernels",
    "meshes",
    "rbf",
    "graphs",
    "operators",
    "blocks",
    "models",
    "data",
    "training",
    "experiments",
    "analysis",
    "report",
    "cli",
)
# Experiments see everything but the command line that starts them.
SEES_ALL = "experiments"
# Above in the list, and yet out of bounds.
FORBIDDEN = {"operators": {"meshes"}, "report": {"training"}, "models": {"data"}}
OPTIONAL = {
    "anny",
    "fast_simplification",
    "matplotlib",
    "plotly",
    "potpourri3d",
    "pygeodesic",
    "pyvista",
    "ray",
    "skimage",
    "torch_geometric",
    "trimesh",
}


def allowed(layer: str) -> set[str]:
    """The layers that one layer may import."""
    above = set(LAYERS if layer == SEES_ALL else LAYERS[: LAYERS.index(layer) + 1])
    return above - FORBIDDEN.get(layer, set()) - ({"cli"} - {layer})


def imported(source: str, module: str, is_package: bool = False) -> set[str]:
    """Dotted names under geoskip that a module imports, anywhere in it."""
    package = module if is_package else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            found |= {f"{base}.{alias.name}" for alias in node.names} if base == "geoskip" else {base}
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return {name for name in found if name.partition(".")[0] == "geoskip"}


def wrong_way(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of a module that do not point up."""
    layer = module.split(".")[1]
    complaints = []
    for name in sorted(imported(source, module, is_package)):
        target = name.split(".")[1] if "." in name else ""
        if target == "__version__":
            continue
        if target not in LAYERS:
            complaints.append(f"{module} imports {name}: take it from its own layer, not from the facade")
        elif target not in allowed(layer):
            complaints.append(f"{module} imports {name}: {layer} may not see {target}")
    return complaints


def eager(source: str) -> set[str]:
    """Optional packages that are imported together with the module, not by the function that needs them."""
    found: set[str] = set()
    for node in _at_import_time(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
    return found & OPTIONAL


def too_long(source: str, limit: int) -> bool:
    return len(source.splitlines()) > limit


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, node.module] if node.module else parents)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _at_import_time(child)
