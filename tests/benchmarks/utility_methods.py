"""What `tracin_utility.py` compares."""

from typing import Any

from influence_methods import Method

from recipe.tracin.method.validation import ValidationSettings

# As configs/experiment/tracin_arithmetic.yaml had them until QUALITY_ONCE was measured.
QUALITY = ValidationSettings(strategy="quality", pool_size=128, k=16, ties="random")
CONTRAST = ValidationSettings(strategy="contrast", pool_size=128, k=16)
QUALITY_64 = ValidationSettings(strategy="quality", pool_size=128, k=64, ties="random")
# As many rollouts in a run of 40 steps as QUALITY_64 has, but all at the start, and every right one is used to the end.
QUALITY_ONCE = ValidationSettings(strategy="quality", pool_size=512, k=512, refresh_every=40)
# 64 of 512, once or new ones every 10 steps: drawn, or the least likely.
ONCE_64_DRAWN = ValidationSettings(strategy="quality", pool_size=512, k=64, refresh_every=40, ties="random")
ONCE_64 = ValidationSettings(strategy="quality", pool_size=512, k=64, refresh_every=40)
POOLS_64_DRAWN = ValidationSettings(strategy="quality", pool_size=512, k=64, ties="random")
POOLS_64 = ValidationSettings(strategy="quality", pool_size=512, k=64)
# New rollouts at every step: nothing of an older policy is in G.
CONTRAST_FRESH = ValidationSettings(strategy="contrast", pool_size=32, k=16, refresh_every=1)
RANDOM_FRESH = ValidationSettings(strategy="random", k=16, rollouts_per_prompt=4, cached=False)
# IIF's, in proportion: a new rollout of each of 1,024 prompts for 256 that are trained on.
ALL_FRESH = ValidationSettings(strategy="fixed", cached=False)


def _as_shipped(name: str, validation: ValidationSettings, *, rule: str = "positive", **options: Any) -> Method:
    """With importance weights and in AdamW's direction."""
    return Method(name, rule, validation, weighted=True, preconditioner="adam", **options)


METHODS = {
    "clean": Method("GRPO, clean rewards", lies=False),
    "grpo": Method("GRPO"),
    "random": Method("random drop", "random", QUALITY),
    "reward_filter": Method("reward filter", "reward_filter"),
    "quality": Method("TracIn quality", "positive", QUALITY),
    "contrast": Method("TracIn contrast", "positive", CONTRAST),
    "in_batch": Method("TracIn in_batch", "positive", ValidationSettings(strategy="in_batch")),
    "quality_64": Method("TracIn quality, k=64", "positive", QUALITY_64),
    "quality_64_weighted": Method("TracIn quality, k=64, weighted", "positive", QUALITY_64, weighted=True),
    "quality_64_adam": _as_shipped("TracIn quality, k=64, weighted, Adam", QUALITY_64),
    "quality_64_lora": Method(
        "TracIn quality, k=64, weighted, LoRA's structure", "positive", QUALITY_64, weighted=True, preconditioner="lora"
    ),
    "quality_once_adam": _as_shipped("TracIn quality, one pool of 512, weighted, Adam", QUALITY_ONCE),
    "once_64_random": _as_shipped("TracIn quality, 64 of one pool of 512, weighted, Adam", ONCE_64_DRAWN),
    "once_64_adam": _as_shipped("TracIn quality, the 64 least likely of one pool of 512, weighted, Adam", ONCE_64),
    "pools_64_random": _as_shipped("TracIn quality, 64 of 512, new every 10 steps, weighted, Adam", POOLS_64_DRAWN),
    "pools_64_adam": _as_shipped(
        "TracIn quality, the 64 least likely of 512, new every 10 steps, weighted, Adam", POOLS_64
    ),
    # What a selection costs where no reward is wrong.
    "clean_adam": _as_shipped("TracIn quality, k=64, weighted, Adam, clean rewards", QUALITY_64, lies=False),
    "clean_once_adam": _as_shipped(
        "TracIn quality, one pool of 512, weighted, Adam, clean rewards", QUALITY_ONCE, lies=False
    ),
    "clean_pools_64": _as_shipped(
        "TracIn quality, the 64 least likely of 512, new every 10 steps, weighted, Adam, clean rewards",
        POOLS_64,
        lies=False,
    ),
    "quality_64_adam_prompts": _as_shipped(
        "TracIn quality, k=64, weighted, Adam, whole prompts", QUALITY_64, unit="prompt"
    ),
    "in_batch_adam": Method(
        "TracIn in_batch, Adam", "positive", ValidationSettings(strategy="in_batch"), preconditioner="adam"
    ),
    "iif": Method("IIF: sequence loss of 512 new rollouts", "positive", ALL_FRESH, sequence=True),
    # The cosine has the sign of the inner product: it differs only where scores are compared with each other.
    "top_half": _as_shipped(
        "TracIn quality, one pool of 512, weighted, Adam, best half", QUALITY_ONCE, rule="top_fraction"
    ),
    "top_half_cosine": _as_shipped("the same by cosine", QUALITY_ONCE, rule="top_fraction", cosine=True),
    "tokens": _as_shipped("TracIn quality, one pool of 512, weighted, Adam, tokens", QUALITY_ONCE, rule="tokens"),
    "contrast_weighted": Method("TracIn contrast, weighted", "positive", CONTRAST, weighted=True),
    "contrast_fresh": Method("TracIn contrast, pool 32, refresh 1", "positive", CONTRAST_FRESH),
    "random_fresh": Method("TracIn random, 16 x 4, not cached", "positive", RANDOM_FRESH),
    "exact": Method("(exact G)", "positive", ValidationSettings(strategy="fixed"), exact=True),
    "exact_adam": Method(
        "(exact G, Adam)", "positive", ValidationSettings(strategy="fixed"), exact=True, preconditioner="adam"
    ),
    "validation_only": Method("(steps along G of quality)", "validation_only", QUALITY),
}
# Only explain the others: one seed.
ONE_SEED = ("contrast_fresh", "random_fresh", "exact", "exact_adam")
