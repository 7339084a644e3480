"""Simulate what a curriculum would save on your engines and prompts; see `simulation.command`."""

from recipe.fast_dapo.simulation.command import main

if __name__ == "__main__":
    main()
