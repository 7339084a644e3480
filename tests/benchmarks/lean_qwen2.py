"""A small Qwen2's forward pass without what transformers adds to it, for tasks whose responses have a long tail.

There, a decoding step of transformers costs more in Python than in arithmetic. Here a prompt is computed once for all
its responses, in sampling and in training, rows leave the batch when they end, and rows of like length are padded
together. The numbers are those of transformers up to rounding. The layers' own modules are called, so that weights,
gradients and adapters are those of the model.

Suffixes: B rows, U different prompts, T new tokens, L tokens so far, D model width, H heads, K head size, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen2ForCausalLM

# Keys and values of so many further tokens are made room for at once.
ROOM = 16
ROWS_PER_FORWARD = 64
# Rows that have ended are dropped once they are more than this share of the batch.
ENDED_SHARE = 0.2

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Prefix:
    """Prompts that responses continue from.

    Attributes:
        hidden_UD: At the last token.
        keys_UHLK, values_UHLK: Of each layer; what lies behind a prompt's end means nothing.
        lengths_U: Tokens.
    """

    hidden_UD: torch.Tensor
    keys_UHLK: list[torch.Tensor]
    values_UHLK: list[torch.Tensor]
    lengths_U: torch.Tensor


class LeanQwen2:
    """A view of a model.

    Args:
        model: With as many heads for keys as for queries, and full attention.
        pad, end: Token ids.

    Raises:
        ValueError: If there are fewer heads for keys than for queries.
    """

    def __init__(self, model: Qwen2ForCausalLM, pad: int, end: int) -> None:
        heads, key_heads = model.config.num_attention_heads, model.config.num_key_value_heads
        if heads != key_heads:
            raise ValueError(f"expected as many heads for keys as for queries, got {key_heads} and {heads}")
        self.body, self.head, self.pad, self.end = model.model, model.lm_head, pad, end
        self.eps = model.config.rms_norm_eps
        positions = torch.arange(model.config.max_position_embeddings)
        cos_1LK, sin_1LK = self.body.rotary_emb(self.body.embed_tokens.weight, positions[None])
        self.cos_LK, self.sin_LK = cos_1LK[0], sin_1LK[0]

    def _hidden(self, ids_BT: torch.Tensor, positions_BT: torch.Tensor, attend: Attend) -> torch.Tensor:
        """(B, T, D) behind the last norm; `attend` gives what a layer's queries find, (B, H, T, K)."""
        x_BTD = self.body.embed_tokens(ids_BT)
        cos_B1TK, sin_B1TK = self.cos_LK[positions_BT][:, None], self.sin_LK[positions_BT][:, None]
        for number, layer in enumerate(self.body.layers):
            attention = layer.self_attn
            y_BTD = functional.rms_norm(x_BTD, x_BTD.shape[-1:], layer.input_layernorm.weight, self.eps)
            q_BHTK, k_BHTK, v_BHTK = (
                project(y_BTD).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            q_BHTK, k_BHTK = (x * cos_B1TK + _rotated(x) * sin_B1TK for x in (q_BHTK, k_BHTK))
            found_BHTK = attend(number, q_BHTK, k_BHTK, v_BHTK)
            x_BTD = x_BTD + attention.o_proj(found_BHTK.transpose(1, 2).flatten(2))
            y_BTD = functional.rms_norm(x_BTD, x_BTD.shape[-1:], layer.post_attention_layernorm.weight, self.eps)
            x_BTD = x_BTD + layer.mlp(y_BTD)
        return functional.rms_norm(x_BTD, x_BTD.shape[-1:], self.body.norm.weight, self.eps)

    def _read(self, prompts_UL: torch.Tensor) -> Prefix:
        """Prompts, padded on the left."""
        padding_U = (prompts_UL == self.pad).sum(1)
        # On the right, padding needs no mask under causal attention.
        places_UL = (torch.arange(prompts_UL.shape[1]) + padding_U[:, None]) % prompts_UL.shape[1]
        lengths_U = prompts_UL.shape[1] - padding_U
        ids_UL = prompts_UL.gather(1, places_UL)[:, : int(lengths_U.max())]
        keys, values = [], []

        def attend(_: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys.append(k)
            values.append(v)
            return scaled_dot_product_attention(q, k, v, is_causal=True)

        hidden_ULD = self._hidden(ids_UL, torch.arange(ids_UL.shape[1]).expand_as(ids_UL), attend)
        return Prefix(hidden_ULD[torch.arange(len(ids_UL)), lengths_U - 1], keys, values, lengths_U)

    def log_probs(self, prompts_BL: torch.Tensor, responses_BT: torch.Tensor) -> torch.Tensor:
        """(B, T) log-probs of responses' tokens; those of padding are 0.

        Args:
            prompts_BL: Padded on the left.
            responses_BT: Padded on the right.
        """
        prompts_UL, inverse_B = torch.unique(prompts_BL, dim=0, return_inverse=True)
        # The last token that is no padding: a policy may also sample the padding token.
        lengths_B = ((responses_BT != self.pad) * torch.arange(1, responses_BT.shape[1] + 1)).amax(1)
        # Rows of one prompt stay together, and prompts of like work come together.
        longest_U = torch.zeros(len(prompts_UL), dtype=torch.long).scatter_reduce(0, inverse_B, lengths_B, "amax")
        work_U = longest_U + (prompts_UL != self.pad).sum(1)
        order_B = torch.argsort(work_U[inverse_B] * len(prompts_UL) + inverse_B, stable=True)
        parts = []
        for rows in order_B.split(ROWS_PER_FORWARD):
            prompts, inverse = torch.unique(inverse_B[rows], return_inverse=True)
            width = max(1, int(lengths_B[rows].max()))
            part_BT = self._go_on(self._read(prompts_UL[prompts]), inverse, responses_BT[rows, :width])
            parts.append(functional.pad(part_BT, (0, responses_BT.shape[1] - width)))
        return torch.cat(parts)[torch.argsort(order_B)]

    def _go_on(self, prefix: Prefix, inverse_B: torch.Tensor, responses_BT: torch.Tensor) -> torch.Tensor:
        hidden_BTD = prefix.hidden_UD[inverse_B][:, None]
        if responses_BT.shape[1] > 1:
            ids_BT = responses_BT[:, :-1]
            lengths_B, steps_T = prefix.lengths_U[inverse_B], torch.arange(ids_BT.shape[1])
            of_prompt_BL = torch.arange(prefix.keys_UHLK[0].shape[2]) < lengths_B[:, None]
            seen_BTL = torch.cat(
                [
                    of_prompt_BL[:, None].expand(-1, len(steps_T), -1),
                    (steps_T <= steps_T[:, None]).expand(len(ids_BT), -1, -1),
                ],
                dim=2,
            )

            def attend(number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
                k = torch.cat([prefix.keys_UHLK[number][inverse_B], k], dim=2)
                v = torch.cat([prefix.values_UHLK[number][inverse_B], v], dim=2)
                return scaled_dot_product_attention(q, k, v, attn_mask=seen_BTL[:, None])

            later_BTD = self._hidden(ids_BT, lengths_B[:, None] + steps_T, attend)
            hidden_BTD = torch.cat([hidden_BTD, later_BTD], dim=1)
        log_probs_BTV = torch.log_softmax(self.head(hidden_BTD), -1)
        return log_probs_BTV.gather(-1, responses_BT[..., None])[..., 0]

    @torch.no_grad()
    def sample(
        self, prompts_UL: torch.Tensor, inverse_B: torch.Tensor, max_response: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A response at temperature 1 for each entry of `inverse_B`.

        Args:
            prompts_UL: Different prompts, padded on the left.
            inverse_B: Rows of `prompts_UL`.
            max_response: Tokens after which a response is cut off.
            generator: Of the draws.

        Returns:
            (B, max_response) token ids, padded on the right; their log-probs; (B,) the responses' lengths.
        """
        prefix = self._read(prompts_UL)
        lengths_B, prompt_width = prefix.lengths_U[inverse_B], prefix.keys_UHLK[0].shape[2]
        keys, values = ([part[inverse_B] for part in parts] for parts in (prefix.keys_UHLK, prefix.values_UHLK))
        bias_BL = torch.zeros(len(inverse_B), prompt_width)
        bias_BL.masked_fill_(torch.arange(prompt_width) >= lengths_B[:, None], float("-inf"))
        logits_BV = self.head(prefix.hidden_UD)[inverse_B]
        tokens_BT = torch.full((len(inverse_B), max_response), self.pad)
        log_probs_BT = torch.zeros(len(inverse_B), max_response)
        ended_B = torch.zeros(len(inverse_B), dtype=torch.long)
        rows = torch.arange(len(inverse_B))  # those still in the batch
        alive = torch.ones(len(inverse_B), dtype=torch.bool)  # of these, those that have not ended
        for step in range(max_response):
            distribution_BV = torch.log_softmax(logits_BV, -1)
            token_B1 = torch.multinomial(distribution_BV.exp(), 1, generator=generator)
            log_probs_BT[rows, step] = distribution_BV.gather(1, token_B1)[:, 0]
            tokens_BT[rows, step] = torch.where(alive, token_B1[:, 0], self.pad)
            ended_B[rows[alive]] = step + 1
            alive = alive & (token_B1[:, 0] != self.end)
            num_alive = int(alive.sum())
            if step == max_response - 1 or not num_alive:
                break
            if num_alive < (1 - ENDED_SHARE) * len(alive):
                kept = alive.nonzero()[:, 0]
                rows, alive, token_B1, lengths_B = rows[kept], alive[kept], token_B1[kept], lengths_B[kept]
                keys, values, bias_BL = [part[kept] for part in keys], [part[kept] for part in values], bias_BL[kept]
            place = prompt_width + step
            if place == bias_BL.shape[1]:
                bias_BL = functional.pad(bias_BL, (0, ROOM))
                keys, values = ([functional.pad(part, (0, 0, 0, ROOM)) for part in parts] for parts in (keys, values))
            attend = _cached(keys, values, bias_BL, place)
            logits_BV = self.head(self._hidden(token_B1, (lengths_B + step)[:, None], attend)[:, 0])
        return tokens_BT, log_probs_BT, ended_B


def _cached(keys: list[torch.Tensor], values: list[torch.Tensor], bias_BL: torch.Tensor, place: int) -> Attend:
    bias_B11L = bias_BL[:, None, None, : place + 1]

    def attend(number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k_BHLK, v_BHLK = keys[number], values[number]
        k_BHLK[:, :, place], v_BHLK[:, :, place] = k[:, :, 0], v[:, :, 0]
        return scaled_dot_product_attention(
            q, k_BHLK[:, :, : place + 1], v_BHLK[:, :, : place + 1], attn_mask=bias_B11L
        )

    return attend


def _rotated(x_BHTK: torch.Tensor) -> torch.Tensor:
    first, second = x_BHTK.chunk(2, -1)
    return torch.cat([-second, first], -1)
