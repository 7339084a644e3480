"""Third-party programs become candidates in the golden form, with what they use of their libraries and nothing else."""

import ast
import sys
import types
from collections.abc import Iterator, Mapping
from textwrap import dedent

import pytest
from each import check_each
from hypothesis import given, settings
from hypothesis import strategies as st
from program_styles import DSL, STYLES

from verl_ext.arc.form import form_problems
from verl_ext.arc.importer.candidate import candidates
from verl_ext.arc.importer.modules import Library, parse_module
from verl_ext.arc.importer.scopes import RefusedError
from verl_ext.arc.solutions import read_solution, solution_names
from verl_ext.sandbox.pool import SandboxPool

GRID = ((1, 2, 3), (4, 5, 6))
TURNED = ((4, 1), (5, 2), (6, 3))
MIRRORED = ((3, 2, 1), (6, 5, 4))

MIRROR = "def solve(grid):\n    return [row[::-1] for row in grid]\n"


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(workers=1) as pool:
        yield pool


def texts(program: str, task: str = "aaaaaaaa", entry: str | None = None, **libraries: str) -> list[str]:
    library = Library({name: parse_module(name, dedent(text)) for name, text in libraries.items()})
    return candidates(parse_module("program", dedent(program)), task, library, entry)


def defined(source: str) -> list[str]:
    """The names that a candidate's body defines, in order."""
    (solve,) = ast.parse(source).body
    assert isinstance(solve, ast.FunctionDef)
    return [node.name for node in solve.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


# ------------------------------ styles ------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_a_program_of_this_style_becomes_a_candidate_that_does_the_same(style: str, pool: SandboxPool):
    made = texts(STYLES[style], dsl=DSL)
    grids = [pool.run(text, GRID).grid for text in made]
    assert (TURNED if "library" in style else MIRRORED) in grids
    for text in made:
        (solve,) = ast.parse(text).body
        assert isinstance(solve, ast.FunctionDef)
        assert ast.unparse(solve.args) == "input_grid"
        assert text.endswith("    return result\n")


def test_the_likeliest_form_comes_first(pool: SandboxPool):
    for style in ("lists", "its own array", "array annotated", "array expected", "tuples"):
        assert pool.run(texts(STYLES[style])[0], GRID).grid == MIRRORED


def test_a_golden_solution_comes_back_as_it_is():
    def check(name: str) -> None:
        source = read_solution(name)
        assert texts(source, name)[0] == source

    check_each(solution_names()[::6], check)


def test_a_converted_grid_has_a_name_of_its_own():
    (text, *_) = texts("import numpy as np\ndef main(input_grid):\n    return input_grid[:, ::-1]  # mirrored\n")
    assert text.endswith(
        """\
    import numpy as np
    grid = np.array(input_grid)
    result = [[int(cell) for cell in row] for row in grid[:, ::-1]]
    return result  # mirrored
"""
    )


# ------------------------------ what is taken ------------------------------


def test_only_what_is_used_is_taken_in_its_order_with_its_comments():
    (text, *_) = texts("from dsl import *\nfrom os import *\n\ndef solve(I):\n    return turn(I)", dsl=DSL)
    assert defined(text) == ["turn", "mirrored"]
    assert "    # Top row becomes right column.\n    def turn(grid, times=1):\n" in text
    assert "NEVER_USED" not in text
    assert "typing" not in text
    assert "Grid" not in text


def test_text_over_several_lines_keeps_its_inside(pool: SandboxPool):
    program = (
        'TEXT = """a\n  b\n"""\n\ndef solve(g):\n    more = """c\nd"""  # why\n    return [[len(TEXT), len(more)]]\n'
    )
    (text, *_) = texts(program)
    assert pool.run(text, GRID).grid == ((6, 3),)
    assert "# why" in text


def test_names_that_mean_two_things_are_told_apart(pool: SandboxPool):
    first = "def step(n): return n + 1\ndef one(n): return step(n)\nresult = 1\n"
    second = "def step(n): return n * 2\ndef two(n): return step(n)\n"
    second += "def max(a, b): return 7\ndef seven(): return max(1, 2)\n"
    program = """
        from first import one, result as given
        import second
        step = 3
        def solve(grid):
            two = second.two(4)
            return [[one(1), two, step, given, second.seven(), max(1, 2)]]
    """
    (text, *_) = texts(program, first=first, second=second)
    assert pool.run(text, GRID).grid == ((2, 8, 3, 1, 7, 2),)


def test_a_name_inside_an_f_string_is_renamed_as_well(pool: SandboxPool):
    library = "def result(n): return n + 1\n"
    (text, *_) = texts(
        "from other import *\ndef solve(g):\n    return [[int(f'{result(1)}{result(2)}') % 10]]", other=library
    )
    assert pool.run(text, GRID).grid == ((3,),)


def test_python_s_scopes_are_kept(pool: SandboxPool):
    program = """
        n = 1
        def solve(grid):
            class Local:
                n = 2
                def of(self):
                    return n
            def outer():
                k = 3
                def inner():
                    nonlocal k
                    k += n
                    return k
                return inner()
            found = [n for n in (5,)] + [(m := n), m]
            return [[Local().of(), Local.n, outer(), *found, n]]
    """
    (text, *_) = texts(program)
    assert pool.run(text, GRID).grid == ((1, 2, 4, 5, 1, 1, 1),)


def test_a_method_sees_its_module_and_not_its_class(pool: SandboxPool):
    program = """
        k = 1
        class Local:
            k = 2
            def of(self):
                return k
        def solve(grid):
            return [[Local().of(), Local.k]]
    """
    assert pool.run(texts(program)[0], GRID).grid == ((1, 2),)


def test_a_local_variable_does_not_hide_what_a_helper_uses(pool: SandboxPool):
    program = """
        def step(n): return n + 1
        def two(n): return step(n)
        def solve(grid):
            step = 5
            return [[two(1), step]]
    """
    assert pool.run(texts(program)[0], GRID).grid == ((2, 5),)


# ------------------------------ what is refused ------------------------------


@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("def solve(g):\n    return open('x').read()", "unsafe", "calls `open`"),
        ("import os\ndef solve(g):\n    os.remove('x')\n    return g", "unsafe", "imports `os`"),
        ("def solve(g):\n    import urllib.request\n    return g", "unsafe", "imports `urllib.request`"),
        ("def f(g): return eval(g)\ndef solve(g):\n    return f(g)", "unsafe", "calls `eval`"),
        ("import numpy as np\ndef solve(g):\n    return np.load('x')", "unsafe", "`.load`"),
        ("def solve(g):\n    return ().__class__.__base__.__subclasses__()", "unsafe", "interpreter"),
        ("__import__('os').system('x')\ndef solve(g):\n    return __import__('os')", "unsafe", "calls `__import__`"),
        ("def solve(g):\n    return absent(g)", "malformed", "uses `absent`, which program does not define"),
        ("from lib import *\ndef solve(g):\n    return absent(g)", "malformed", "give lib.py as --library"),
        ("from dsl import absent\ndef solve(g):\n    return absent(g)", "malformed", "which does not define it"),
        ("from scipy import ndimage\ndef solve(g):\n    return ndimage.label(g)", "malformed", "sandbox does not have"),
        ("def solve(g):\n    import dsl\n    return dsl.turn(g)", "malformed", "top of the file"),
        ("import dsl\ndef solve(g):\n    return [dsl]", "malformed", "as a value"),
        ("n = 0\ndef solve(g):\n    global n\n    n += 1\n    return g", "malformed", "`global n`"),
        ("async def f(): pass\ndef solve(g):\n    return f()", "malformed", "async"),
        ("def solve(a, b):\n    return a", "malformed", "found `solve(a, b)`"),
        ("class Solver:\n    pass", "malformed", "no entry function"),
        ("class solve:\n    pass", "malformed", "not a plain function"),
        ("def solve(g:\n    return g", "malformed", "line 1 of program is not valid Python"),
        ("def solve(g):\n    return '\0'", "malformed", "not valid Python"),
        ("def solve(g):\n    return " + "(" * 300 + ")" * 300, "malformed", "not valid Python"),
        ("def solve(g):\n    return " + "-" * 3000 + "1", "malformed", "nested too deeply"),
        ("x = 1\n" * 200_000, "malformed", "characters: expected at most"),
    ],
)  # fmt: skip
def test_what_does_not_only_compute_or_cannot_be_had_is_refused_in_one_sentence(program: str, status: str, words: str):
    with pytest.raises(RefusedError) as refused:
        texts(program, dsl=DSL)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.status == status


def test_what_is_not_used_is_not_refused():
    program = "import os, sys\nimport scipy\n\ndef other(g):\n    return eval(open(g))\n\n" + MIRROR
    assert "eval" not in texts(program)[0]


# ------------------------------ observations and procedure ------------------------------


def test_words_of_the_program_become_observations_and_procedure():
    program = '''
        # The grid has rows. Each has a first
        # and a last cell.

        def solve(grid):
            """Mirror the grid.

            Args:
                grid: a grid
            """
            # Take every row
            # from its end.
            out = [row[::-1] for row in grid]
            # Give it back.
            return out
    '''
    (text, *_) = texts(program)
    assert text == dedent(
        '''\
        def solve(input_grid):
            """
            Observations:
            - The grid has rows.
            - Each has a first and a last cell.
            - Mirror the grid.
            Procedure:
            1. Take every row from its end.
            2. Give it back.
            """
            # Take every row
            # from its end.
            out = [row[::-1] for row in input_grid]
            # Give it back.
            result = out
            return result
        '''
    )
    assert form_problems(text) == []


def test_missing_words_are_marked_and_the_form_check_says_so():
    (text, *_) = texts(MIRROR)
    problems = form_problems(text)
    assert len([problem for problem in problems if problem.startswith("still to be written by a person")]) == 2
    assert all("observations" in one or "still to be written" in one for one in problems)


@pytest.mark.parametrize("words", ['Ends in a quote"', "Has ``` in it", "A \\\\path\\\\n", "Three ''' quotes", "- \\x"])
def test_words_of_any_kind_leave_the_program_whole(words: str):
    (text, *_) = texts(f"# {words}\n" + MIRROR)
    assert isinstance(ast.parse(text).body[0], ast.FunctionDef)
    assert "```" not in text


# ------------------------------ the whole module as the oracle ------------------------------

NAMES = ("a", "b", "c", "max", "result")


@st.composite
def modules(draw: st.DrawFn) -> dict[str, str]:
    """A library and a program that imports it: functions that call earlier ones and have locals with similar names."""
    found: dict[str, str] = {}
    known: list[str] = []
    for module in ("lib", "program"):
        lines: list[str] = []
        if module == "program":
            style = draw(st.sampled_from(["star", "attribute", "alias"]))
            lines.append({"star": "from lib import *", "attribute": "import lib"}.get(style, ""))
            if style == "alias":
                lines += [f"from lib import {name} as x_{name}" for name in dict.fromkeys(known)]
            prefix = {"star": "", "attribute": "lib.", "alias": "x_"}[style]
            known = [prefix + name for name in known]
        lines += ["state = {}", f"state[0] = {draw(st.integers(0, 9))}"]
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5)):
            called = draw(st.lists(st.sampled_from(known), max_size=2)) if known else []
            local = draw(st.sampled_from(("n", "a", "c", "x_b", "local")))
            inner = " + ".join([f"{local} * {draw(st.integers(0, 9))}", "state[0]", *(f"{one}(1)" for one in called)])
            # A local with the name of a function that it calls would not be bound at the call.
            plain = "n" if local in called else local
            lines += [
                f"def {name}(n: int) -> int:",
                f"    {plain} = n + 1",
                f"    return {inner.replace(local, plain, 1)}",
            ]
            known = [one for one in known if one != name] + [name]
        found[module] = "\n".join(lines) + "\n"
    calls = ", ".join(
        f"{name}(grid[0][0]) % 1000" for name in draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    )
    found["program"] += f"def solve(grid):\n    return [[{calls}]]\n"
    return found


def run_whole(sources: Mapping[str, str]) -> object:
    """What the program returns when its modules are imported as in Python; this test wrote them."""
    made = {name: types.ModuleType(name) for name in sources}
    sys.modules["lib"] = made["lib"]
    try:
        for name, module in made.items():
            exec(sources[name], module.__dict__)
        return made["program"].solve([[3]])
    except RecursionError:
        return None
    finally:
        del sys.modules["lib"]


@settings(max_examples=150, deadline=None)
@given(modules())
def test_a_candidate_does_what_its_whole_program_does(sources: dict[str, str]):
    (text, *_) = texts(sources["program"], lib=sources["lib"])
    space: dict[str, object] = {}
    exec(text, space)
    try:
        found = space["solve"]([[3]])  # type: ignore[operator]
    except RecursionError:
        found = None
    assert found == run_whole(sources)
