"""The command `python -m recipe.fast_dapo.evaluate`, which is `verl_ext.evaluation.command`."""

from verl_ext.evaluation.command import main

if __name__ == "__main__":
    main()
