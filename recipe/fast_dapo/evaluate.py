"""Pass rates of a model on data files, sampled with vLLM; see `verl_ext.evaluation.command`."""

from verl_ext.evaluation.command import main

if __name__ == "__main__":
    main()
