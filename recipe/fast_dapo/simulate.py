"""The command `python -m recipe.fast_dapo.simulate`, which is `simulation.command`."""

from recipe.fast_dapo.simulation.command import main

if __name__ == "__main__":
    main()
