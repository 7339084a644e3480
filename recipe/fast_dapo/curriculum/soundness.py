"""Whether a prompt's rewards can be believed, by how far they contradict what prompts like it do. Pure: numpy, scipy.

Wrong labels and broken graders attract a curriculum. The policy learns everything around such a prompt, so the others
leave pass rate 1/2 while its own stays there: it pulls against them, is chosen again and again, and teaches what is
wrong. What gives it away is its prior, which knows what prompts with its features do by now.

A prompt is *sound* if its pass rate is from the prior Beta(a, b) of its features. With the probability
`faulty_share` it is not, and its pass rate may be anything: Beta(1, 1). After p passes and f fails,

    odds of faulty to sound = faulty_share / (1 - faulty_share) * B(1 + p, 1 + f) / [B(a + p, b + f) / B(a, b)]

which is Bayes' rule for two beta-binomials. A prior that knows little contradicts little, and evidence that fades
gives a prompt its credit back.
"""

import numpy as np
from scipy.special import betaln, expit

from recipe.fast_dapo.curriculum.prior import Beta


def soundness(prior: Beta, passes: np.ndarray, fails: np.ndarray, faulty_share: float) -> np.ndarray:
    """Probability of each prompt that its rewards are right.

    Args:
        prior: Of each prompt's pass rate.
        passes: Of each prompt; not necessarily whole.
        fails: Likewise.
        faulty_share: Of all prompts, expected before any rollout; in (0, 1).

    Returns:
        Float64 in (0, 1), of the shape of `passes`; 1 - faulty_share for prompts without rollouts.
    """
    log_odds = np.log1p(-faulty_share) - np.log(faulty_share)
    log_likelihood_sound = betaln(prior.alpha + passes, prior.beta + fails) - betaln(prior.alpha, prior.beta)
    log_likelihood_faulty = betaln(1 + passes, 1 + fails)  # B(1, 1) is 1
    return expit(log_odds + log_likelihood_sound - log_likelihood_faulty)
