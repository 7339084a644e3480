"""The competing methods by name, each written from its paper with the paper's settings as defaults.

All take (num_prompts, *, batch, group, seed), so that a benchmark can tune them in the same way: `batch` prompts per
step with `group` rollouts each. `Uniform` with group=2 is 2-GRPO (arXiv 2510.00977), the controller's merged schedule
is SPEED (arXiv 2506.09016, withdrawn), and verl's own dynamic sampling is `FilterGroups`, all in `sampling_methods.py`.

Common to all of them here, and different from some papers:

- Each group is generated within one step by the policy of that step, except where a method itself lets rollouts wait.
- A pool with nothing to learn gives no error and no empty batch: groups of equal rewards are trained on, whose
  advantages are 0. A pool that is smaller than a batch gives smaller batches.
"""

from collections.abc import Callable

from allocating_methods import Knapsack
from filtering_methods import Greso, PilotCommit
from predicting_methods import Dps, Mopps
from sampling_methods import Method
from single_stream import SingleStream

COMPETITORS: dict[str, Callable[..., Method]] = {
    "pilot_commit": PilotCommit,
    "greso": Greso,
    "mopps": Mopps,
    "dps": Dps,
    "knapsack": Knapsack,
    "spo": SingleStream,
}
