"""What the command of every recipe does: check, dry run, start Ray, run, clean up; and what a recipe is (`recipe.py`).

May import all below: `trainer`, `cpu`, `serving`, `cluster`, `data`, `run`, `core`.
"""
