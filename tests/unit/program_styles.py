"""A small helper library, and programs for one ARC rule in the styles of several people."""

import re

DSL = """
from typing import Tuple

Grid = Tuple[Tuple[int]]
NEVER_USED = 99

def unused(grid: Grid) -> Grid:
    return missing_name(grid)

# Top row becomes right column.
def turn(
    grid: Grid,
    times: int = 1
) -> Grid:
    \"\"\" a quarter turn, again and again \"\"\"
    if times == 0:
        return grid
    return turn(mirrored(tuple(zip(*grid))), times - 1)

def mirrored(grid: Grid) -> Grid:
    return tuple(row[::-1] for row in grid)
"""

# Programs by name; those that use the library turn the grid, the others mirror it.
STYLES = dict(
    re.findall(
        r"^## (.+)\n((?:(?!## ).*\n)+)",
        """\
## lists
def solve(grid):
    return [row[::-1] for row in grid]
## annotated lists
def transform(grid: list[list[int]]) -> list[list[int]]:
    return [r[::-1] for r in grid]
## golf
p=lambda g:[r[::-1]for r in g]
## golf with a semicolon
k=-1;p=lambda g:[r[::k]for r in g]
## one line
def p(g): return [r[::-1] for r in g]
## task in the name
def helper(a, b): return a
def solve_aaaaaaaa(I):
    O = tuple(r[::-1] for r in I)
    return O
## tuples
from typing import Tuple
def solve(g: Tuple[Tuple[int]]):
    return tuple(map(tuple, (r[::-1] for r in {g: g}[g])))
## its own array
import numpy as np
def solve(grid):
    a = np.array(grid)
    return np.fliplr(a).tolist()
## array annotated
import numpy
def transform(g: numpy.ndarray) -> numpy.ndarray:
    return g[:, ::-1]
## array expected
import numpy as np
def main(input_grid):
    out = np.zeros(input_grid.shape)
    out[:] = np.fliplr(input_grid)
    return out
## array without an import
def main(g):
    h = g.copy()
    h[:, 0] = g[:, 2]
    h[:, 2] = g[:, 0]
    return h
## columns first
import numpy as np
def main(g):
    assert g.shape == (3, 2)
    return g[::-1, :]
## changes its argument
def solve(g):
    for r in g:
        r.reverse()
    return g
## several returns
def solve(g):
    if not g:
        return g
    return [r[::-1] for r in g]
## a recursive solve
def solve(g):
    return [g[0][::-1]] + (solve(g[1:]) if g[1:] else [])
## a table that is filled
T = {}
for i in range(3):
    T[i] = 2 - i
def solve(g):
    return [[r[T[c]] for c in range(3)] for r in g]
## a list that is appended to
T = []
T.append(-1)
T.extend([])
def solve(g):
    return [r[::T[0]] for r in g]
## a class
class Rule:
    step: int = -1
    def of(self, r):
        return r[::self.step]
def solve(g):
    return [Rule().of(r) for r in g]
## a decorator
from functools import lru_cache
@lru_cache(None)
def at(c):
    return 2 - c
def solve(g):
    return [[r[at(c)] for c in range(3)] for r in g]
## a later definition
def f(r): return r
def f(r): return r[::-1]
def solve(g):
    return [f(r) for r in g]
## tests at its end
def solve(grid):
    return [row[::-1] for row in grid]

if __name__ == '__main__':
    print(open('tasks.json').read())
print(solve([[1]]))
## the library by a star
from dsl import *
def solve_aaaaaaaa(I):
    return turn(I)
## the library by its name
import dsl
def solve(I):
    turn = dsl.turn(I, 1)
    return turn
## the library by another name
from arc.dsl import turn as f
def solve(turn):
    return f(turn)
## a star of Python's
from math import *
def solve(g):
    return [[r[floor(2.5) - c] for c in range(3)] for r in g]
""",
        re.MULTILINE,
    )
)
