"""Rest of prompts between two choices, as in spaced repetition. Pure: numpy.

Prompts with wrong rewards attract a curriculum. The policy learns everything around such a prompt, so the others leave
pass rate 1/2 while its own stays there: it works against them, is chosen again and again, and teaches wrong answers. A
prompt therefore rests after its c-th choice for

    rest_epochs * min(1, c / 20)^2

epochs, where an epoch is as many choices as there are prompts. So the first ten choices of a promising prompt come
nearly as quickly as without a rest, and in the long run none has more than 1 / rest_epochs choices per epoch.
"""

from collections.abc import Mapping

import numpy as np

# Choices after which the rest no longer grows.
_FULL_REST = 20


class Rest:
    """Which of the prompts 0 .. num_prompts - 1 rest.

    Attributes:
        num_choices: Of all prompts so far.
    """

    def __init__(self, num_prompts: int, rest_epochs: float) -> None:
        self._longest = rest_epochs * num_prompts  # in choices
        self.num_choices = 0
        self._times_chosen = np.zeros(num_prompts, dtype=np.int64)
        self._last_chosen = np.zeros(num_prompts, dtype=np.int64)  # `num_choices` before that choice

    def remaining(self, positions: np.ndarray) -> np.ndarray:
        """Choices until the rest of each prompt ends, float64; 0 or less where it has."""
        rest = self._longest * np.minimum(1.0, self._times_chosen[positions] / _FULL_REST) ** 2
        return self._last_chosen[positions] + rest - self.num_choices

    def begin(self, chosen: np.ndarray) -> None:
        """Prompts of one choice, all different, rest from now on."""
        self._times_chosen[chosen] += 1
        self._last_chosen[chosen] = self.num_choices
        self.num_choices += len(chosen)

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays for a checkpoint, together with `num_choices`."""
        return {"times_chosen": self._times_chosen, "last_chosen": self._last_chosen}

    def restore(self, arrays: Mapping[str, np.ndarray], num_choices: int) -> None:
        """Restore what `arrays` returned."""
        self._times_chosen, self._last_chosen = arrays["times_chosen"], arrays["last_chosen"]
        self.num_choices = num_choices
