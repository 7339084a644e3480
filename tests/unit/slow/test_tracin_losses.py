"""Which of verl's policy losses have per-sample gradients that a weight can scale, tested on verl's own functions."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn
from verl.workers.config import ActorConfig
from verl.workers.config.actor import PolicyLossConfig

from verl_ext.influence.method.denominators import (
    DENOMINATORS,
    LOSS_AGG_MODES,
    POLICY_LOSSES,
    loss_problem,
    row_factors,
)

NUM, TOKENS, HORIZON = 8, 7, 9
WEIGHTS = np.array([1.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.25, 0.0])
KEPT = WEIGHTS > 0
ONE = np.zeros(NUM, dtype=int)
ALLOWED = [(name, mode) for name, modes in POLICY_LOSSES.items() for mode in modes]
# For bypass_mode: the losses that it chooses from, and its weights.
VARIANTS = {
    "bypass_mode": [
        RolloutCorrectionConfig(rollout_is=weights, rollout_rs=rejected, rollout_rs_threshold=2.0, loss_type=loss)
        for weights in ("token", "sequence")
        for rejected in (None, "seq_mean_k3")
        for loss in ("ppo_clip", "reinforce")
    ]
}


class Loss:
    """One of verl's losses on a fixed mini-batch: lengths differ, some tokens are clipped, some rows have holes."""

    def __init__(self, name: str, mode: str, correction: RolloutCorrectionConfig | None = None) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.old = -normal(NUM, TOKENS).abs()
        self.new = (self.old + 0.25 * normal(NUM, TOKENS)).clamp_max(-1e-3)
        self.advantages = normal(NUM, 1).expand(NUM, TOKENS)
        self.mask = torch.arange(TOKENS) < torch.tensor([7, 3, 5, 2, 6, 7, 1, 4])[:, None]
        self.mask[0, 2] = False
        self.function, self.mode = get_policy_loss_fn(name), mode
        policy_loss = PolicyLossConfig(
            loss_mode=name, dro_beta=0.5, **({"rollout_correction": correction} if correction else {})
        )
        self.config = ActorConfig(
            strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, loss_agg_mode=mode, policy_loss=policy_loss
        )

    def gradient(
        self, factors: np.ndarray, mask: torch.Tensor, rows: Sequence[int] = range(NUM), counted: int | None = None
    ) -> torch.Tensor:
        """Gradient in the log-probs, (NUM, TOKENS), of a micro-batch's loss, given what `ppo_loss` gives it."""
        rows = list(rows)
        self.config.global_batch_info.update(
            dp_size=1,
            batch_num_tokens=int(mask.sum()) if counted is None else counted,
            global_batch_size=NUM,
            loss_scale_factor=HORIZON,
        )
        log_probs = self.new.clone().requires_grad_()
        loss, _ = self.function(
            old_log_prob=self.old[rows],
            log_prob=log_probs[rows],
            advantages=(self.advantages * torch.from_numpy(factors)[:, None])[rows],
            response_mask=mask[rows],
            loss_agg_mode=self.mode,
            config=self.config,
        )
        return torch.autograd.grad(loss, log_probs)[0]

    def parts(self) -> torch.Tensor:
        """(NUM, NUM, TOKENS): what each row adds to the gradient of the whole mini-batch, all others masked."""
        tokens = int(self.mask.sum())
        masks = [self.mask & (torch.arange(NUM) == row)[:, None] for row in range(NUM)]
        return torch.stack([self.gradient(np.ones(NUM), mask, counted=tokens) for mask in masks])

    def additivity_error(self) -> float:
        """Largest relative error between the whole mini-batch, its micro-batches, and its rows one by one."""
        tokens, ones = int(self.mask.sum()), np.ones(NUM)
        whole = self.gradient(ones, self.mask)
        split = self.gradient(ones, self.mask, range(3), tokens) + self.gradient(ones, self.mask, range(3, NUM), tokens)
        return max(relative(split, whole), relative(self.parts().sum(0), whole))

    def selection_error(self, denominator: str) -> float:
        """Relative error of verl's gradient with factors and masks against the one that the setting stands for."""
        lengths = self.mask.sum(1).numpy()
        factors = row_factors(
            denominator, self.mode, lengths, WEIGHTS, scored_in=ONE, updated_in=ONE, global_batch_size=NUM
        )
        got = self.gradient(factors, self.mask & torch.from_numpy(KEPT)[:, None])
        wanted = torch.einsum("b,bct->ct", torch.from_numpy(WEIGHTS), self.parts())
        if denominator == "kept":
            # The mean over what is kept is larger by the ratio of the full denominator to that of the kept rows.
            if self.mode == "token-mean":
                wanted *= lengths.sum() / lengths[KEPT].sum()
            elif self.mode != "token-sum":
                wanted *= NUM / KEPT.sum()
        return relative(got, wanted)


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


def variants(name: str) -> list[RolloutCorrectionConfig | None]:
    return list(VARIANTS.get(name, [None]))


@pytest.mark.parametrize(("name", "mode"), ALLOWED)
def test_samples_of_an_allowed_loss_add_up_and_scale(name: str, mode: str):
    assert loss_problem(name, mode) is None
    for correction in variants(name):
        loss = Loss(name, mode, correction)
        assert loss.additivity_error() < 1e-6  # verl adds 1e-8 to a row's length
        for denominator in DENOMINATORS:
            assert loss.selection_error(denominator) < 1e-6, (denominator, correction)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("sapo", "token-mean"),
        *((name, mode) for name in ("geo_mean", "dro") for mode in LOSS_AGG_MODES),
    ],
)
def test_a_refused_loss_is_refused_for_a_reason(name: str, mode: str):
    problem = loss_problem(name, mode)
    assert problem is not None
    assert f"loss_mode={name}" in problem
    loss = Loss(name, mode)
    worst = max(loss.additivity_error(), *(loss.selection_error(denominator) for denominator in DENOMINATORS))
    assert worst > 0.01


def test_batch_normalised_weights_are_refused_for_a_reason():
    problem = loss_problem("bypass_mode", "token-mean", is_batch_normalized=True)
    assert problem is not None
    assert "rollout_is_batch_normalize=false" in problem
    correction = RolloutCorrectionConfig(rollout_is="token", rollout_is_batch_normalize=True, loss_type="reinforce")
    assert Loss("bypass_mode", "token-mean", correction).additivity_error() > 0.01
    assert loss_problem("vanilla", "token-mean", is_batch_normalized=True) is None


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_losses_that_mix_samples_are_refused(name: str):
    assert "mixes the samples" in str(loss_problem(name, "token-mean"))


def test_every_loss_of_verl_is_either_allowed_or_refused_with_its_reason():
    refused = set(POLICY_LOSS_REGISTRY) - set(POLICY_LOSSES)
    assert refused >= {"clip_cov", "kl_cov", "geo_mean", "dro"}
    for name in (*refused, "my_own"):
        assert loss_problem(name, "token-mean")
    assert "is not known to add up" in str(loss_problem("my_own", "token-mean"))
    for mode in LOSS_AGG_MODES:
        assert (loss_problem("sapo", mode) is None) == (mode == "seq-mean-token-mean")
