"""Checks of source text: which way imports point, what is imported eagerly, how long files are.

Functions of strings, so that the tests can plant a fault and see it found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# A layer may import itself and those before it in this list.
LAYERS = (
    "shapes",
    "arguments",
    "registry",
    "records",
    "meshes",
    "report",
    "kernels",
    "rbf",
    "graphs",
    "operators",
    "blocks",
    "pyg",
    "models",
    "data",
    "training",
    "inference",
    "paper",
    "cli",
)
OPTIONAL = {
    "anny",
    "fast_simplification",
    "matplotlib",
    "plotly",
    "potpourri3d",
    "pygeodesic",
    "ray",
    "skimage",
    "torch_geometric",
    "trimesh",
}
# Modules that exist to adapt an optional package, and are imported only where it is in use.
ADAPTERS = {"geoskip.pyg.fast_layer": {"torch_geometric"}, "geoskip.pyg.layers": {"torch_geometric"}}


# File names that several folders may have.
IDIOMS = {"__init__", "__main__", "base"}


def shared_names(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """File names, other than idioms, that several modules have."""
    by_name: dict[str, list[Path]] = {}
    for path in paths:
        by_name.setdefault(path.stem, []).append(path)
    return {name: found for name, found in by_name.items() if len(found) > 1 and name not in IDIOMS}


def repeated_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The modules that define a class of the same name, by name, where there are several."""
    defined: dict[str, list[str]] = {}
    for module, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in defined.items() if len(modules) > 1}


def allowed(layer: str) -> set[str]:
    """The layers that one layer may import."""
    return set(LAYERS[: LAYERS.index(layer) + 1])


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


PLATFORM_IMPORTS = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg"}
PLATFORM_CALLS = {
    "os": {"chown", "fork", "fsync", "getgid", "getuid", "kill", "killpg", "mkfifo", "name", "rename", "replace"}
    | {"setsid", "symlink", "uname"},
    "signal": {"SIGALRM", "SIGBREAK", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "SIGUSR2", "alarm"},
    "sys": {"platform"},
}


def platform_calls(source: str) -> list[str]:
    """What does not exist, or works differently, on some operating system."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in PLATFORM_IMPORTS]
        elif isinstance(node, ast.ImportFrom) and node.module in PLATFORM_IMPORTS:
            found.append(node.module or "")
        elif isinstance(node, ast.Attribute):
            owner = getattr(node.value, "id", "")
            if node.attr in PLATFORM_CALLS.get(owner, ()) or node.attr in ("symlink_to", "hardlink_to"):
                found.append(f"{owner}.{node.attr}")
    return found


def without_encoding(source: str) -> list[str]:
    """Calls that read or write text in the encoding of the machine, which is not UTF-8 everywhere."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        on_path = isinstance(node.func, ast.Attribute) and node.func.attr in ("read_text", "write_text")
        if on_path or ((mode := _mode(node)) is not None and "b" not in mode):
            found.append(ast.unparse(node))
    return found


def direct_writes(source: str) -> list[str]:
    """Calls that write a file under its own name, of which a kill would leave a part."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            mode = _mode(node)
            if _called(node) in ("write_bytes", "write_text", "savefig") or (mode and set(mode) & set("wax+")):
                found.append(ast.unparse(node))
    return found


def _mode(node: ast.Call) -> str | None:
    """How a call of ``open(path, mode)`` or ``path.open(mode)`` opens a file; None for other calls of that name."""
    if _called(node) != "open":
        return None
    if isinstance(node.func, ast.Attribute):
        if isinstance(node.func.value, ast.Name) and node.func.value.id != "path":
            return _constant(node.args[0]) if node.args else None
        return _constant(node.args[0]) if node.args else "r"
    return _constant(node.args[1]) if len(node.args) > 1 else "r"


def _constant(node: ast.expr) -> str | None:
    is_mode = isinstance(node, ast.Constant) and isinstance(node.value, str) and set(node.value) <= set("rwaxbt+")
    return str(node.value) if is_mode and isinstance(node, ast.Constant) else None
