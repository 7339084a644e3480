"""What the metrics of golden redaction mean; see `verl_ext/core/metric_glossary.py`.

`{where}` is `trainer`, measured by the actor, or `engine`, measured by the engine that serves; `{when}` is `before` or
`after` the update.
"""

from verl_ext.core.metric_glossary import Glossary

METRICS: Glossary = {
    "golden/movement/{where}/num_tokens": ("tokens", "labelled tokens of the step's updates"),
    "golden/movement/{where}/intended_way": ("fraction", "labelled tokens whose log-prob went the right way"),
    "golden/movement/{where}/intended": ("fraction", "the right way, up to their target"),
    "golden/movement/{where}/overshot": ("fraction", "the right way, past their target"),
    "golden/movement/{where}/wrong_way": ("fraction", "the wrong way"),
    "golden/movement/{where}/still": ("fraction", "moved by no more than golden.movement_tolerance"),
    "golden/movement/{where}/moved": ("nats", "mean way of a labelled token along its advantage"),
    "golden/movement/{where}/asked": ("nats", "mean way to its target"),
    "golden/movement/{where}/drift_mean": ("nats", "mean |change| of tried tokens without a label"),
    "golden/movement/{where}/drift_max": ("nats", "the largest of these"),
    "golden/movement/{where}/others": ("probability", "mean |change| of what the tokens that nobody tried have"),
    "golden/k/mean": ("tokens", "hidden golden tokens, mean of the problems"),
    "golden/k/min": ("tokens", "the fewest"),
    "golden/k/max": ("tokens", "the most"),
    "golden/k/share": ("fraction", "mean of hidden tokens / length of the solution"),
    "golden/k/share_complete": ("fraction", "problems whose whole solution is hidden"),
    "golden/k/num_grown": ("visits", "after which a problem's k grew; since the start"),
    "golden/k/num_shrunk": ("visits", "after which it shrank; since the start"),
    "golden/k/num_stale": ("visits", "of a length that had changed meanwhile, which change nothing; since the start"),
    "golden/k/num_unlabelled": ("visits", "without any reward, which change nothing; since the start"),
    "golden/k/num_passed_over": ("lengths", "not visited, as their token was decided; since the start"),
    "golden/retired/share": ("fraction", "problems that are solved and visited only for checks"),
    "golden/retired/num_checks": ("visits", "of solved problems; since the start"),
    "golden/retired/num_returned": ("visits", "of these, after which a problem is trained again; since the start"),
    "golden/visits/min": ("visits", "of the problem that was visited least"),
    "golden/visits/max": ("visits", "of the one visited most"),
    "golden/visits/warm": ("visits", "that came from an earlier run's records; only with golden.records.warm_start"),
    "golden/visits/warm_far": (
        "visits",
        "of these records left out, as the policy is too far from the one that made them",
    ),
    "golden/visits/num_actions": ("tokens", "candidate next tokens of a state, mean"),
    "golden/visits/undecided_share": ("fraction", "states with more than one candidate"),
    "golden/visits/labelled_share": ("fraction", "states with a label"),
    "golden/visits/state_reward": ("reward", "mean reward of the step's states"),
    "golden/state_reward/mean": ("reward", "of the last labelled visit of every problem, mean"),
    "golden/actions/num_preferred": ("tokens", "labelled better than the others of their state"),
    "golden/actions/num_dispreferred": ("tokens", "labelled worse"),
    "golden/actions/teacher_preferred": ("fraction", "of the preferred tokens, those of the golden solution"),
    "golden/rollouts/num": ("rollouts", "made in this step"),
    "golden/rollouts/examples_only": (
        "fraction",
        "right on every example of the prompt and wrong on a held-out pair: copied, or too narrow a rule",
    ),
    "golden/rollouts/no_label": ("rollouts", "without a reward, after an infrastructure error"),
    "golden/sandbox/{status}": ("fraction", "rollouts by the status that decided: ok, wrong_output, timeout, …"),
    "golden/probe/{share}": (
        "fraction",
        "pass rate of free rollouts with this share of each solution hidden; every trainer.test_freq steps",
    ),
    "golden/loss": ("nats", "mean loss of the step's updates"),
    "golden/num_inner_steps": (
        "steps",
        "of the optimizer in one update, mean of the step's; at most golden.targets.steps",
    ),
    "golden/num_updates": ("updates", "of the actor in this step"),
    "golden/num_labelled_states": ("states", "that these updates saw"),
    "golden/hidden_norm/first": (
        "root mean square",
        "of the residual stream before the first layer, at the last token of each state, mean",
    ),
    "golden/hidden_norm/last": ("root mean square", "before the last layer"),
    "golden/hidden_norm/max": ("root mean square", "the largest over the layers"),
    "golden/tensors/grad_norm/{kind}": ("norm", "mean, min and max over the weight tensors: gradient, after clipping"),
    "golden/tensors/update_to_weight/{kind}": ("ratio", "norm of a tensor's change / norm of its values"),
    "golden/tensors/changed_share/{kind}": (
        "fraction",
        "values that are another number in the serving dtype, or in float32 with serving.rounding=stochastic; below 1, "
        "part of the update is lost by rounding",
    ),
    "engine_guard/probs_diff_mean/{when}": ("probability", "mean of |p_engine - p_actor| over the step's tokens"),
    "engine_guard/probs_diff_max/{when}": ("probability", "the largest of them"),
    "timing_s/settle": ("s", "log-probs of the golden tokens, and passing over decided lengths"),
    "timing_s/sandbox": ("s", "running programs"),
    "timing_s/engine_before": ("s", "log-probs of the step's tokens in the engine, before the update"),
    "timing_s/log_prob_after": ("s", "the same in the actor, after it"),
    "timing_s/engine_after": ("s", "the same in the engine, with the new weights"),
}
