"""Predicts each prompt's pass rate and chooses what to screen. Pure: numpy and scipy.

Every prompt has a discounted Beta posterior of its pass rate: with a prior Beta(a, b),

    passes <- discount^(versions since) * passes + new passes,   likewise fails;   rate ~ Beta(a + passes, b + fails)

so that what an old policy did counts less (a discounted Bernoulli bandit, Russo et al. 2018, section 6.3). A prompt
gives the most signal near pass rate 1/2 and its screening is then most likely mixed: `choose` draws a rate from each
posterior (Thompson sampling) and takes those closest to 1/2. Prompts never seen have the wide prior and are drawn
often; those known to be hopeless or solved are not.

Evidence lags behind a policy that learns: predictions are corrected by how the last ones came out
(`recalibration.py`).

The prior is fitted to the pool by what has been seen of it, and to what each prompt is (`prior.py`): a pool in which
nearly nothing is mixed makes unknown prompts unattractive, and prompts that look like those that were mixed attract.

No prompt starves: a share 1/`exploration_epochs` of all choices goes to the prompts whose last choice is longest ago,
so every prompt is chosen at least once in `exploration_epochs` epochs (an epoch: as many choices as there are prompts).
No data source starves either: each gets at least `min_source_share` of the choices that a random order would give it.
A pass rate of 0 may mean that a source's answers are read in a format that the model does not know yet, not that its
prompts are hopeless, and one right answer there is worth more than its pass rate says.

`choose` costs O(candidates) numpy operations and `observe` O(1), however large the data set is.
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from recipe.fast_dapo.curriculum.least_recent import LeastRecent
from recipe.fast_dapo.curriculum.prior import MAX_FITTED, FeaturePrior
from recipe.fast_dapo.curriculum.recalibration import Recalibration
from verl_ext.core.settings import Settings

_STATE_VERSION = 2
# Prediction against outcome, in tenths of the predicted pass rate.
NUM_BINS = 10


class PredictorSettings(Settings):
    """Settings of `PassRatePosterior`."""

    prior_passes: float = Field(default=0.2, gt=0)
    """First parameter of a pass rate's Beta prior; below 1, since most prompts are never or always solved."""

    prior_fails: float = Field(default=0.2, gt=0)
    """Its second parameter."""

    prior_weight: float | None = Field(default=20.0, gt=0)
    """The prior is fitted to the prompts seen so far; so many prompts count for the one above. null: never fitted, and
    no features are used."""

    discount: float = Field(default=0.99, gt=0, le=1)
    """What is kept of the evidence at each weight version. 1: nothing is forgotten."""

    recalibrate: bool = True
    """Predictions are corrected by how those of the last few policies came out, as evidence lags behind a policy that
    learns. false: they are the posterior of what was seen."""

    use_features: bool = True
    """The prior of each prompt depends on its data source, its length and the numbers in its extra_info, as far as
    these turn out to tell anything. false: one prior for all prompts."""

    exploration_epochs: float = Field(default=8.0, ge=1)
    """Epochs' worth of choices within which every prompt is screened at least once."""

    min_source_share: float = Field(default=0.5, ge=0, le=1)
    """Of the choices that a random order would give a data source, what it gets at least. 1: each gets exactly its
    share; 0: a source may starve. Sources with less than a hundredth of the prompts count as one."""

    max_candidates: int = Field(default=65536, ge=1)
    """Prompts that a choice draws rates for; a random part of larger data sets. Those that must not be chosen count."""

    seed: int = Field(default=0, ge=0)
    """Of the draws."""


class PassRatePosterior:
    """Discounted Beta posteriors of a data set's prompts, numbered by their position 0 .. num_prompts - 1.

    Args:
        num_prompts: P.
        settings: Of the posterior and of choices.
        features_PF: (P, F) what is known of each prompt without a rollout; None: nothing.
        sources_P: (P,) int, the number of each prompt's data source, from 0; None: all have the same.
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
        self._sources = _with_rare_ones_together(sources_P)
        self._source_shares = np.bincount(self._sources) / num_prompts
        self._source_credits = np.zeros(len(self._source_shares))
        self._rng = np.random.default_rng(settings.seed)
        self._passes = np.zeros(num_prompts)
        self._fails = np.zeros(num_prompts)
        self._version = np.zeros(num_prompts, dtype=np.int64)  # to which the two above are discounted
        self._choices = LeastRecent(np.argsort(self._rng.permutation(num_prompts)))
        self._exploration_credit = 0.0
        self._reliability = np.zeros((NUM_BINS, 3))  # rollouts, sum of predictions, passes
        self.reset_calibration()

    def __len__(self) -> int:
        return len(self._passes)

    def posterior(self, positions: np.ndarray | Sequence[int] | int) -> tuple[np.ndarray, np.ndarray]:
        """(alpha, beta) of the prompts now, float64 arrays of the shape of `positions`."""
        mean, strength, evidence_share = self._evidence(np.asarray(positions))
        if self.settings.recalibrate:
            mean = self.recalibration(mean, evidence_share)
        return strength * mean, strength * (1 - mean)

    def _evidence(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and strength of the posterior as it was seen, and the share of rollouts in its strength."""
        prior = self.prior(positions)
        kept = self.settings.discount ** (self.weight_version - self._version[positions])
        passes, fails = kept * self._passes[positions], kept * self._fails[positions]
        strength = prior.alpha + prior.beta + passes + fails
        return (prior.alpha + passes) / strength, strength, (passes + fails) / strength

    def posteriors(self, positions: Sequence[int]) -> list[tuple[float, float]]:
        """(alpha, beta) of each of these prompts now."""
        alpha, beta = self.posterior(np.asarray(positions, dtype=np.int64))
        return list(zip(alpha.tolist(), beta.tolist(), strict=True))

    def set_weight_version(self, weight_version: int) -> None:
        """Say which policy is in force; evidence is discounted from here, and the prior fitted to what was seen."""
        if weight_version < self.weight_version:
            raise ValueError(f"expected weight_version >= {self.weight_version}, got {weight_version}")
        self.weight_version = int(weight_version)
        if self.settings.recalibrate:
            self.recalibration.fit(self.weight_version)
        if self.settings.prior_weight is None:
            return
        seen = np.flatnonzero(self._passes + self._fails)
        # The most recent ones tell most of what the policy can do now; ties by position, so that equal runs are equal.
        seen = seen[np.argsort(self._version[seen], kind="stable")][-MAX_FITTED:]
        kept = self.settings.discount ** (self.weight_version - self._version[seen])
        self.prior.fit(seen, kept * self._passes[seen], kept * self._fails[seen])

    def observe(self, position: int, passes: int, fails: int) -> None:
        """Add the outcomes of rollouts of one prompt by the current policy, and compare them with the prediction."""
        if passes < 0 or fails < 0:
            raise ValueError(f"expected counts of at least 0, got {passes} passes and {fails} fails")
        if passes + fails == 0:
            return
        alpha, beta = (float(value) for value in self.posterior(position))
        rate = alpha / (alpha + beta)
        count = passes + fails
        place = min(int(rate * NUM_BINS), NUM_BINS - 1)
        self._calibration += count, passes * (1 - rate) ** 2 + fails * rate**2, passes, rate * count
        self._reliability[place] += count, rate * count, passes
        mean, strength, evidence_share = (float(value) for value in self._evidence(np.asarray(position)))
        self.recalibration.observe(self.weight_version, mean, strength, evidence_share, passes, count)
        kept = self.settings.discount ** (self.weight_version - self._version[position])
        self._passes[position] = kept * self._passes[position] + passes
        self._fails[position] = kept * self._fails[position] + fails
        self._version[position] = self.weight_version

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
        # So many are enough, whichever of them are unavailable.
        num_drawn = max(self.settings.max_candidates, count + num_unavailable)
        everything = num_drawn >= len(self)
        drawn = np.arange(len(self)) if everything else self._rng.choice(len(self), num_drawn, replace=False)
        candidates = drawn[~unavailable[drawn]]
        distance = np.abs(self._rng.beta(*self.posterior(candidates)) - 0.5)
        chosen = np.concatenate([explored, candidates[self._best(candidates, distance, count, explored)]])
        self._choices.take(chosen)
        return chosen

    def _best(self, candidates: np.ndarray, distance: np.ndarray, count: int, explored: np.ndarray) -> np.ndarray:
        """Indices of the candidates with the smallest distance, of each source at least its floor."""
        wanted = count - len(explored)
        if len(self._source_shares) == 1:
            return _smallest(distance, wanted)
        sources = self._sources[candidates]
        self._source_credits += self.settings.min_source_share * count * self._source_shares
        owed = np.maximum(
            self._source_credits - np.bincount(self._sources[explored], minlength=len(self._source_shares)), 0
        )
        best: list[np.ndarray] = [np.empty(0, dtype=np.int64)]
        debts: list[np.ndarray] = [np.empty(0)]
        for source in np.flatnonzero(owed >= 1):
            own = np.flatnonzero(sources == source)
            best.append(own[_smallest(distance[own], min(int(owed[source]), len(own)))])
            debts.append(owed[source] - np.arange(len(best[-1])))
        # Where more is owed than there are places, who is owed most comes first.
        floor = np.concatenate(best)[np.argsort(-np.concatenate(debts), kind="stable")][:wanted]
        distance = distance.copy()
        distance[floor] = np.inf
        chosen = np.concatenate([floor, _smallest(distance, wanted - len(floor))])
        taken = np.bincount(
            self._sources[np.concatenate([explored, candidates[chosen]])], minlength=len(self._source_shares)
        )
        # What a source had beyond its floor does not count against it later. One whose prompts cannot be chosen is owed
        # each of them once at most.
        self._source_credits = np.clip(self._source_credits - taken, 0.0, self._source_shares * len(self))
        return chosen

    # ------------------------------ calibration ------------------------------

    def reset_calibration(self) -> None:
        """Begin a new window of `calibration`."""
        self._calibration = np.zeros(4)  # rollouts, sum of squared errors, passes, sum of predictions

    def calibration(self) -> dict[str, float]:
        """Since the last reset: Brier score of single rollouts, that of always predicting the mean, and the bias."""
        count, squared, passes, predicted = self._calibration
        if not count:
            return {}
        mean = passes / count
        return {
            "predictor/brier": squared / count,
            "predictor/brier_of_the_mean": mean * (1 - mean),
            "predictor/bias": (predicted - passes) / count,
            "predictor/observed_rollouts": count,
            "predictor/prior_mean": self.prior.average[0] / sum(self.prior.average),
            "predictor/prior_strength": sum(self.prior.average),
        }

    def reliability_table(self) -> list[dict[str, float]]:
        """Rows of predicted tenths that occurred in this run: rollouts, mean prediction, observed pass rate."""
        return [
            {"bin": place / NUM_BINS, "rollouts": count, "predicted": predicted / count, "observed": passes / count}
            for place, (count, predicted, passes) in enumerate(self._reliability.tolist())
            if count
        ]

    # ------------------------------ state ------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything, in containers that `json.dumps` takes; arrays as base64, about 40 bytes a prompt."""
        return {
            "state_version": _STATE_VERSION,
            "num_prompts": len(self),
            "prior": self.prior.coefficients.tolist(),
            "recalibration": self.recalibration.state(),
            "source_credits": self._source_credits.tolist(),
            "weight_version": self.weight_version,
            "exploration_credit": self._exploration_credit,
            "rng": self._rng.bit_generator.state,
            "reliability": self._reliability.tolist(),
            "arrays": {name: _pack(array) for name, array in self._arrays().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace everything by a saved state.

        Raises:
            ValueError: if it is of another format or another data set. Nothing has changed then.
        """
        if state.get("state_version") != _STATE_VERSION:
            raise ValueError(f"expected state_version {_STATE_VERSION}, got {state.get('state_version')!r}")
        if state["num_prompts"] != len(self):
            raise ValueError(
                f"the checkpoint's predictor knows {state['num_prompts']} prompts, the data set has {len(self)}: "
                "resume with the same data, or start a new run"
            )
        coefficients, credits = np.array(state["prior"]), np.array(state["source_credits"])
        if coefficients.shape != self.prior.coefficients.shape or credits.shape != self._source_credits.shape:
            raise ValueError(
                f"the checkpoint's predictor knows {coefficients.shape[1] - 1} features of a prompt and {len(credits)} "
                f"data sources, now there are {self.prior.coefficients.shape[1] - 1} and {len(self._source_credits)}: "
                "resume with the same data and the same curriculum.posterior.use_features"
            )
        arrays = {name: _unpack(state["arrays"][name], array.dtype) for name, array in self._arrays().items()}
        self._passes, self._fails, self._version = arrays["passes"], arrays["fails"], arrays["version"]
        self._choices = LeastRecent(np.argsort(arrays["last_choice"], kind="stable"))
        self.prior.coefficients, self._source_credits = coefficients, credits
        self.recalibration.restore(state["recalibration"])
        self.weight_version = int(state["weight_version"])
        self._exploration_credit = float(state["exploration_credit"])
        self._rng.bit_generator.state = state["rng"]
        self._reliability = np.array(state["reliability"])

    def _arrays(self) -> dict[str, np.ndarray]:
        last_choice = np.empty(len(self), dtype=np.int64)
        last_choice[self._choices.order()] = np.arange(len(self))
        return {"passes": self._passes, "fails": self._fails, "version": self._version, "last_choice": last_choice}

    def __repr__(self) -> str:
        return f"PassRatePosterior({len(self)} prompts, {self.settings!r})"


def _with_rare_ones_together(sources_P: np.ndarray) -> np.ndarray:
    """Sources numbered anew, those with less than a hundredth of the prompts as one.

    A floor for each of hundreds of sources would leave nothing to choose.
    """
    counts = np.bincount(sources_P)
    is_rare = counts < 0.01 * len(sources_P)
    numbers = np.where(is_rare, counts.size, np.arange(counts.size))
    return np.unique(numbers[sources_P], return_inverse=True)[1].reshape(-1)


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` smallest values, in increasing order of value."""
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    part = np.argpartition(values, count - 1)[:count] if count < len(values) else np.arange(len(values))
    return part[np.argsort(values[part], kind="stable")]


def _pack(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _unpack(text: str, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype).copy()
