"""The yield and cost of screening, and how many prompts to admit for one batch. Pure."""

import math

# Discount per prompt of the evidence on how many qualify: about the last hundred prompts count.
_DISCOUNT = 0.99


class ScreeningRecord:
    """Recent yield and cost of screening, discounted per prompt.

    Starts with two prompts of which one qualified: admitting too few costs another look, too many costs rollouts.

    Attributes:
        screened, qualified: Prompts.
        wasted: Rollouts spent on prompts that did not qualify.
    """

    def __init__(self, screened: float = 2.0, qualified: float = 1.0, wasted: float = 4.0) -> None:
        self.screened = screened
        self.qualified = qualified
        self.wasted = wasted

    def observe(self, qualified: bool, num_rollouts: int) -> None:
        self.screened = _DISCOUNT * self.screened + 1.0
        self.qualified = _DISCOUNT * self.qualified + qualified
        self.wasted = _DISCOUNT * self.wasted + (0 if qualified else num_rollouts)

    @property
    def qualified_share(self) -> float:
        return self.qualified / self.screened

    @property
    def price(self) -> float:
        """Rollouts wasted per qualified prompt."""
        return self.wasted / self.qualified


def num_to_admit(*, wanted: int, certain: int, in_screening: int, qualified_share: float, max_in_screening: int) -> int:
    """New prompts to screen now.

    Args:
        wanted: Prompts of the batch.
        certain: Prompts that are ready or in continuation.
        in_screening: Prompts whose outcome is open; each counts as `qualified_share`.
        qualified_share: Expected share of screened prompts that qualify.
        max_in_screening: Bound on prompts in screening at once.

    Returns:
        The smallest number with certain + qualified_share * (in_screening + number) >= wanted, within the bound.
    """
    missing = wanted - certain - qualified_share * in_screening
    if missing <= 0:
        return 0
    room = max(0, max_in_screening - in_screening)
    # A share near 0 would ask for more than can be counted.
    return room if missing >= qualified_share * room else math.ceil(missing / qualified_share)
