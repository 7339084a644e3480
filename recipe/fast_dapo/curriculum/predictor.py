"""Predicts each prompt's pass rate and chooses what to screen. Pure: numpy and scipy.

Every prompt has a discounted Beta posterior of its pass rate: with a prior Beta(a, b),

    passes <- discount^(versions since) * passes + new passes,   likewise fails;   rate ~ Beta(a + passes, b + fails)

so that what an old policy did counts less (a discounted Bernoulli bandit, Russo et al. 2018, section 6.3). A prompt
gives the most signal near pass rate 1/2 and its screening is then most likely mixed: `choose` draws a rate from each
posterior (Thompson sampling) and takes those closest to 1/2. Prompts never seen have the wide prior and are drawn
often; those known to be hopeless or solved are not.

Successes may be graded (`grading.py`). Passes are then their sum and fails what they lack of 1, and a draw m is worth
the variance m (1 - m) - e, where e is the posterior mean of the prompt's shortfall E[s (1 - s)]: that of its rollouts,
shrunk towards k m0 (1 - m0) by the strength of its prior, which has the mean m0. k is the shortfall of all rollouts
over the sum of their m0 (1 - m0). Where successes are 0 or 1, e is 0 and the order is that of the distance to 1/2.

Evidence lags behind a policy that learns: predictions are corrected by the errors of recent ones (`recalibration.py`).

The prior is fitted to the outcomes seen so far and to each prompt's features (`prior.py`): in a pool where almost no
prompt is mixed, unknown prompts are rarely chosen, and prompts similar to mixed ones are chosen more often.

No prompt starves: a share 1/`exploration_epochs` of all choices goes to the prompts whose last choice is longest ago,
so every prompt is chosen at least once in `exploration_epochs` epochs (an epoch: as many choices as there are prompts).
No data source starves either: each gets at least `min_source_share` of the choices that a random order would give it.
A pass rate of 0 may mean that a source's answers are read in a format that the model does not know yet, not that its
prompts are hopeless, and one right answer there is worth more than its pass rate says.

No prompt is chosen all the time: after each choice it rests, the longer the more often it was chosen (`rest.py`).

With `use_influence` prompts that are expected to harm a validation set come after all others that do not rest
(`prompt_influence.py`).

`choose` costs O(candidates) numpy operations and `observe` O(1), however large the data set is.
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from recipe.fast_dapo.curriculum.least_recent import LeastRecent
from recipe.fast_dapo.curriculum.predictor_settings import PredictorSettings
from recipe.fast_dapo.curriculum.prior import MAX_FITTED, FeaturePrior
from recipe.fast_dapo.curriculum.prompt_influence import PromptInfluence
from recipe.fast_dapo.curriculum.recalibration import Recalibration
from recipe.fast_dapo.curriculum.reliability import Reliability
from recipe.fast_dapo.curriculum.rest import Rest
from recipe.fast_dapo.curriculum.source_floor import SourceFloor

_STATE_VERSION = 4


class PassRatePosterior:
    """Discounted Beta posteriors of a data set's prompts, numbered by their position 0 .. num_prompts - 1.

    Args:
        num_prompts: P.
        settings: Settings of the posterior and of the choices.
        features_PF: (P, F) features of each prompt, known without a rollout; None: no features.
        sources_P: (P,) int, the number of each prompt's data source, from 0; None: all have the same.

    Attributes:
        shortfall_share: By how much the variance of graded successes falls short of m (1 - m), as a share of it; 0 for
            successes of 0 or 1.
        reliability: Predictions compared with outcomes.
        influence: What is known about the prompts' influence on a validation set; unused without `use_influence`.
        harmful_share: Share of the candidates of the last choice that were expected to harm.
    """

    def __init__(
        self,
        num_prompts: int,
        settings: PredictorSettings,
        features_PF: np.ndarray | None = None,
        sources_P: np.ndarray | None = None,
    ) -> None:
        if num_prompts < 1:
            raise ValueError(f"expected at least one prompt, got {num_prompts}")
        self.settings = settings
        self.weight_version = 0
        features_PF = np.empty((num_prompts, 0)) if features_PF is None else features_PF
        sources_P = np.zeros(num_prompts, dtype=np.int64) if sources_P is None else np.asarray(sources_P)
        for name, values in (("features", features_PF), ("sources", sources_P)):
            if len(values) != num_prompts:
                raise ValueError(f"expected {name} of {num_prompts} prompts, got those of {len(values)}")
        self.prior = FeaturePrior(
            features_PF, (settings.prior_passes, settings.prior_fails), settings.prior_weight or np.inf
        )
        self.recalibration = Recalibration()
        self._floor = SourceFloor(sources_P, settings.min_source_share)
        self._rng = np.random.default_rng(settings.seed)
        self._passes = np.zeros(num_prompts)
        self._fails = np.zeros(num_prompts)
        self._shortfall = np.zeros(num_prompts)
        self._version = np.zeros(num_prompts, dtype=np.int64)  # the version to which the three above are discounted
        self.shortfall_share = 0.0
        self._choices = LeastRecent(np.argsort(self._rng.permutation(num_prompts)))
        self._rest = Rest(num_prompts, settings.rest_epochs)
        self.influence = PromptInfluence(sources_P, settings.discount)
        self.harmful_share = 0.0
        self._exploration_credit = 0.0
        self.reliability = Reliability()

    def __len__(self) -> int:
        return len(self._passes)

    def posterior(self, positions: np.ndarray | Sequence[int] | int) -> tuple[np.ndarray, np.ndarray]:
        """(alpha, beta) of the prompts now, float64 arrays of the shape of `positions`."""
        mean, strength, evidence_share = self._evidence(np.asarray(positions))
        if self.settings.recalibrate:
            mean = self.recalibration(mean, evidence_share)
        return strength * mean, strength * (1 - mean)

    def _evidence(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Uncorrected mean and strength of the posterior, and the share of rollouts in its strength."""
        prior, kept = self.prior(positions), self._kept(positions)
        passes, fails = kept * self._passes[positions], kept * self._fails[positions]
        strength = prior.alpha + prior.beta + passes + fails
        return (prior.alpha + passes) / strength, strength, (passes + fails) / strength

    def _kept(self, positions: np.ndarray) -> np.ndarray:
        """Discount factor of each prompt's evidence now."""
        return self.settings.discount ** (self.weight_version - self._version[positions])

    def shortfall(self, positions: np.ndarray) -> np.ndarray:
        """The current estimate of each prompt's E[s (1 - s)], float64 of the shape of `positions`; 0 for successes of 0
        or 1."""
        (alpha, beta), kept = self.prior(positions), self._kept(positions)
        strength = alpha + beta
        expected = self.shortfall_share * alpha * beta / strength  # strength times k m0 (1 - m0)
        rollouts = kept * (self._passes[positions] + self._fails[positions])
        return (expected + kept * self._shortfall[positions]) / (strength + rollouts)

    def posteriors(self, positions: Sequence[int]) -> list[tuple[float, float]]:
        """(alpha, beta) of each of these prompts now."""
        alpha, beta = self.posterior(np.asarray(positions, dtype=np.int64))
        return list(zip(alpha.tolist(), beta.tolist(), strict=True))

    def set_weight_version(self, weight_version: int) -> None:
        """Announce a new policy: evidence is discounted, and the prior is fitted to the outcomes seen."""
        if weight_version < self.weight_version:
            raise ValueError(f"expected weight_version >= {self.weight_version}, got {weight_version}")
        self.weight_version = int(weight_version)
        if self.settings.recalibrate:
            self.recalibration.fit(self.weight_version)
        seen = np.flatnonzero(self._passes + self._fails)
        # The most recent outcomes are the most informative about the current policy; ties by position, for determinism.
        latest = seen[np.argsort(self._version[seen], kind="stable")][-MAX_FITTED:]
        kept = self._kept(latest)
        self.prior.fit(latest, kept * self._passes[latest], kept * self._fails[latest])
        self._fit_shortfall(seen)

    def _fit_shortfall(self, seen: np.ndarray) -> None:
        found = self._kept(seen) @ self._shortfall[seen]
        if not found:
            self.shortfall_share = 0.0
            return
        alpha, beta = self.prior(seen)
        rollouts = self._kept(seen) * (self._passes[seen] + self._fails[seen])
        self.shortfall_share = float(found / (rollouts @ (alpha * beta / (alpha + beta) ** 2)))

    def observe(self, position: int, passes: float, fails: float, shortfall: float = 0.0) -> None:
        """Add the outcomes of rollouts of one prompt by the current policy, and compare them with the prediction.

        Args:
            position: Position of the prompt.
            passes: Sum of the successes s.
            fails: Sum of 1 - s.
            shortfall: Sum of s (1 - s), see `grading.py`; 0 where each is 0 or 1.
        """
        if min(passes, fails, shortfall) < 0:
            raise ValueError(
                f"expected counts of at least 0, got {passes} passes, {fails} fails and a shortfall of {shortfall}"
            )
        if passes + fails == 0:
            return
        alpha, beta = (float(value) for value in self.posterior(position))
        self.reliability.observe(alpha / (alpha + beta), passes, fails, shortfall)
        mean, strength, evidence_share = (float(value) for value in self._evidence(np.asarray(position)))
        self.recalibration.observe(self.weight_version, mean, strength, evidence_share, passes, passes + fails)
        kept = self.settings.discount ** (self.weight_version - self._version[position])
        self._passes[position] = kept * self._passes[position] + passes
        self._fails[position] = kept * self._fails[position] + fails
        self._shortfall[position] = kept * self._shortfall[position] + shortfall
        self._version[position] = self.weight_version

    def observe_influence(self, positions: Sequence[int], scores: Sequence[float]) -> None:
        """Take the influence scores of the groups of one update, by the position of their prompts."""
        self.influence.observe(np.asarray(positions), np.asarray(scores), self.weight_version)

    def choose(self, count: int, exclude: Collection[int] = ()) -> np.ndarray:
        """Positions of the next prompts to screen, all different.

        Args:
            count: How many.
            exclude: Positions that must not be chosen, such as prompts in flight.

        Returns:
            Int64 array; shorter than `count` only if fewer prompts are left.
        """
        unavailable = np.zeros(len(self), dtype=bool)
        unavailable[np.fromiter(exclude, dtype=np.int64, count=len(exclude))] = True
        num_unavailable = len(set(exclude))
        count = min(count, len(self) - num_unavailable)
        if count <= 0:
            return np.empty(0, dtype=np.int64)
        self._exploration_credit += count / self.settings.exploration_epochs
        num_explored = min(count, int(self._exploration_credit))
        self._exploration_credit -= num_explored
        explored = self._choices.oldest(num_explored, unavailable)
        unavailable[explored] = True
        # Enough candidates, even if all excluded ones are among them.
        num_drawn = max(self.settings.max_candidates, count + num_unavailable)
        everything = num_drawn >= len(self)
        drawn = np.arange(len(self)) if everything else self._rng.choice(len(self), num_drawn, replace=False)
        candidates = drawn[~unavailable[drawn]]
        drawn_rates = self._rng.beta(*self.posterior(candidates))
        # Square root of 1/4 minus the variance: exactly |rate - 1/2| with passes and failures, without additional ties.
        distance = np.sqrt((drawn_rates - 0.5) ** 2 + self.shortfall(candidates))
        if self.settings.use_influence and self.influence.has_evidence:
            is_harmful = self.influence.is_harmful(candidates, self._rng)
            self.harmful_share = float(is_harmful.mean())
            distance = np.where(is_harmful, 0.5 + distance, distance)
        # Resting prompts come after all others; if they are needed, the one whose rest is most complete comes first.
        remaining = self._rest.remaining(candidates)
        distance = np.where(remaining > 0, 1 + remaining, distance)
        chosen = np.concatenate([explored, candidates[self._floor.best(candidates, distance, count, explored)]])
        self._choices.take(chosen)
        self._rest.begin(chosen)
        return chosen

    def calibration(self) -> dict[str, float]:
        """The scores of `reliability` since its last reset, and the current prior."""
        scores = self.reliability.scores()
        if not scores:
            return {}
        scores["predictor/prior_mean"] = self.prior.average[0] / sum(self.prior.average)
        scores["predictor/prior_strength"] = sum(self.prior.average)
        if self.shortfall_share:
            scores["predictor/shortfall_share"] = self.shortfall_share
        if self.settings.use_influence:
            scores["predictor/harmful_share"] = self.harmful_share
        return scores

    # ------------------------------ state ------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The whole state, in containers that `json.dumps` accepts; arrays as base64, about 50 bytes per prompt."""
        return {
            "state_version": _STATE_VERSION,
            "num_prompts": len(self),
            "prior": self.prior.coefficients.tolist(),
            "recalibration": self.recalibration.state(),
            "source_credits": self._floor.credits.tolist(),
            "weight_version": self.weight_version,
            "exploration_credit": self._exploration_credit,
            "choices": self._rest.num_choices,
            "rng": self._rng.bit_generator.state,
            "shortfall_share": self.shortfall_share,
            "influence_version": self.influence.version,
            "reliability": self.reliability.table.tolist(),
            "arrays": {name: _pack(array) for name, array in self._arrays().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], order_P: np.ndarray | None = None) -> None:
        """Replace the whole state by a saved one.

        Args:
            order_P: (P,) int, the position that each prompt had when it was saved; None: the same.

        Raises:
            ValueError: if its format or data set differs. Nothing is changed then.
        """
        if (version := state.get("state_version")) not in (2, 3, _STATE_VERSION):
            raise ValueError(
                f"expected the predictor's state_version {_STATE_VERSION}, got {version!r}: start a new run, or resume "
                "with the release that saved it"
            )
        if state["num_prompts"] != len(self):
            raise ValueError(
                f"the checkpoint's predictor knows {state['num_prompts']} prompts, the data set has {len(self)}: "
                "resume with the same data, or start a new run"
            )
        coefficients, credits = np.array(state["prior"]), np.array(state["source_credits"])
        if coefficients.shape != self.prior.coefficients.shape or credits.shape != self._floor.credits.shape:
            raise ValueError(
                f"the checkpoint's predictor knows {coefficients.shape[1] - 1} features of a prompt and {len(credits)} "
                f"data sources, now there are {self.prior.coefficients.shape[1] - 1} and {len(self._floor.credits)}: "
                "resume with the same data and the same curriculum.posterior.use_features"
            )
        # Version 2, before graded successes, had no shortfall; versions before 4 had no rest. Influence came later.
        nothing = {"shortfall": np.zeros(len(self))} | Rest(len(self), 0.0).arrays() | self.influence.none()
        saved = {name: _pack(array) for name, array in nothing.items()} | state["arrays"]
        order = slice(None) if order_P is None else order_P
        arrays = {name: _unpack(saved[name], array.dtype)[order] for name, array in self._arrays().items()}
        self._passes, self._fails, self._version = arrays["passes"], arrays["fails"], arrays["version"]
        self._shortfall, self.shortfall_share = arrays["shortfall"], float(state.get("shortfall_share", 0.0))
        self._rest.restore(arrays, int(state.get("choices", 0)))
        self.influence.restore(arrays, int(state.get("influence_version", 0)))
        self._choices = LeastRecent(np.argsort(arrays["last_choice"], kind="stable"))
        self.prior.coefficients, self._floor.credits = coefficients, credits
        self.recalibration.restore(state["recalibration"])
        self.weight_version = int(state["weight_version"])
        self._exploration_credit = float(state["exploration_credit"])
        self._rng.bit_generator.state = state["rng"]
        self.reliability.table = np.array(state["reliability"])

    def _arrays(self) -> dict[str, np.ndarray]:
        last_choice = np.empty(len(self), dtype=np.int64)
        last_choice[self._choices.order()] = np.arange(len(self))
        evidence = {"passes": self._passes, "fails": self._fails, "shortfall": self._shortfall}
        return (
            evidence
            | self._rest.arrays()
            | self.influence.arrays()
            | {"version": self._version, "last_choice": last_choice}
        )

    def __repr__(self) -> str:
        return f"PassRatePosterior({len(self)} prompts, {self.settings!r})"


def _pack(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _unpack(text: str, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype).copy()
