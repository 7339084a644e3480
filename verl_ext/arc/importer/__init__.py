"""Programs that others wrote for ARC, as candidates for golden solutions. Pure but for reading files and the sandbox.

    read.py        what a file, a folder or rows of JSON have: texts, each for a task
    scopes.py      which names a statement takes from outside, and which it gives
    modules.py     a program and its libraries as statements, and where a name is defined
    selection.py   the statements that an entry function needs, however indirectly (tree shaking)
    layout.py      these statements as text within one function, with their comments
    candidate.py   that text as `solve(input_grid)` in the golden form
    judge.py       the candidates in the sandbox, and the shortest right one per task

Nothing here runs a program: it is read as a syntax tree, and the sandbox runs the candidate.
"""
