"""The optimizer's direction for a gradient, in which it moves the weights. Pure torch.

AdamW moves each weight by -lr m_hat / (sqrt(v_hat) + eps). To first order, with v unchanged, sample i's part of that
step lowers the validation loss by lr (1 - beta_1) <g_i, G / (sqrt(v_hat) + eps)>, up to m's bias correction: so the
inner product is taken with the preconditioned G. Plain inner products are those of gradient descent.

    v_hat = v / (1 - beta_2^t)        v, t: `exp_avg_sq` and `step` of the optimizer's state

A weight whose v is 0 never had a gradient (lora_A in the first update, when lora_B was 0): v does not determine AdamW's
first step for it, and 1 / eps would dominate all others. It is left out.
"""

from collections.abc import Mapping

import torch

from verl_ext.influence.method.ghost_parameters import InfluenceError


def adam_factors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor] | None:
    """1 / (sqrt(v_hat) + eps) of each weight, 0 where v is 0; None before the first step.

    Args:
        optimizer: `torch.optim.AdamW` or `torch.optim.Adam`.
        parameters: Parameters by name.

    Returns:
        Factors with the dtype, layout and device of the state: sharded like the parameter.

    Raises:
        InfluenceError: The optimizer keeps no second moment of these parameters.
    """
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    unknown = [name for name, parameter in parameters.items() if id(parameter) not in groups]
    if unknown:
        raise InfluenceError(f"the optimizer does not train {unknown[0]}: score parameters that it trains")
    if not any(optimizer.state.get(parameter) for parameter in parameters.values()):
        return None
    return {name: _factor(name, optimizer, groups[id(parameter)], parameter) for name, parameter in parameters.items()}


def _factor(
    name: str, optimizer: torch.optim.Optimizer, group: Mapping[str, object], parameter: torch.nn.Parameter
) -> torch.Tensor:
    state = optimizer.state.get(parameter)
    if not state:
        return torch.zeros_like(parameter).detach()
    moment = state.get("max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq")
    if moment is None or not {"betas", "eps"} <= group.keys():
        raise InfluenceError(
            f"{type(optimizer).__name__} keeps no second moment (exp_avg_sq) of {name}: preconditioner=adam needs "
            "AdamW or Adam of torch.optim. Use one of them, or preconditioner=none"
        )
    _, beta = group["betas"]  # type: ignore[misc]
    root = (moment / (1 - beta ** float(state["step"]))).sqrt()
    return torch.where(moment > 0, 1 / (root + group["eps"]), torch.zeros_like(root))
