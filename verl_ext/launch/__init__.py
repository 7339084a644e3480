"""The command of every recipe: check, dry run, start Ray, run, clean up; and the definition of a recipe (`recipe.py`).

May import all below: `trainer`, `cpu`, `serving`, `cluster`, `data`, `run`, `core`.
"""
