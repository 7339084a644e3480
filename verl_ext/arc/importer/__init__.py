"""Turns other people's ARC programs into candidates for golden solutions. Pure except for files and the sandbox.

    read.py        what a file, a folder or rows of JSON have: texts, each for a task
    scopes.py      which names a statement uses from outside, and which it defines
    modules.py     a program and its libraries as statements, and where a name is defined
    selection.py   the statements that an entry function needs, however indirectly (tree shaking)
    layout.py      these statements as text within one function, with their comments
    candidate.py   that text as `solve(input_grid)` in the golden form
    judge.py       the candidates in the sandbox, and the shortest right one per task

No program is run here: it is read as a syntax tree, and the sandbox runs the candidate.
"""
