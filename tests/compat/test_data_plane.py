"""Only one file uses the store of rollouts, because verl is about to replace it."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ONLY = "verl_ext/serving/data_plane.py"


def _imports(path: Path) -> set[str]:
    """Top-level packages that a file imports, anywhere in it, by statement or by `import_module`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return {str(name).partition(".")[0] for name in found}


def test_only_the_data_plane_imports_transfer_queue():
    folders = ("verl_ext", "recipe", "data_preprocess", "tests", "docs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 200
    using = {str(path.relative_to(ROOT)) for path in files if "transfer_queue" in _imports(path)}
    assert using == {ONLY}
