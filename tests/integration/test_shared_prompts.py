"""verl's passes with prompts and their beginnings computed once give what they give on separate rows.

verl's worker and FSDP2 engine in 1 and 2 CPU processes, no Ray; in float64, so that 1e-10 separates equal from nearly.
"""

import influence_oracle as oracle
import pytest
import torch
from shared_prompt_ranks import BEGINNING, ENGINES, LIMITS, PROMPTS, all_worlds, share_prompts
from worlds import Found

from verl_ext.cpu.shared_prompts import Row, families, order_by_prompt

TOLERANCE = {"fp64": 1e-10, "fp32": 1e-5}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("shared_prompts")
    with pytest.MonkeyPatch.context() as patch:
        oracle.keep_precision(patch.setattr)
        oracle.save_models(folder)
        torch.save(oracle.make_rows(folder), folder / "rows.pt")
    return Found(all_worlds, folder)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("max_tokens", LIMITS)
@pytest.mark.parametrize("name", ENGINES)
def test_log_probs_entropies_and_updates_are_those_of_separate_rows(
    found: Found, name: str, max_tokens: int, world: int
):
    shared, separate = found[world][name, max_tokens]
    tolerance = TOLERANCE[ENGINES[name].precision]
    for key in ("log_probs", "entropy", "change"):
        assert shared[key].shape == separate[key].shape
        assert (shared[key] - separate[key]).norm() <= tolerance * separate[key].norm()
        assert separate[key].norm() > 0


def test_two_of_the_prompts_share_their_beginning():
    rows = share_prompts([{"responses": torch.zeros(oracle.HORIZON // 2)}] * oracle.NUM_ROWS)
    known = [Row(tuple(row["prompts"].tolist()), len(row["responses"])) for row in rows]
    ordered = [known[position] for position in order_by_prompt(known, oracle.HIDDEN_SIZE)]
    shared = {
        family.shared: len({row.prompt for row in family.rows}) for family in families(ordered, oracle.HIDDEN_SIZE)
    }
    assert shared == {BEGINNING: 2, PROMPTS[-1]: 1}


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_fewer_tokens_are_computed_if_a_micro_batch_has_room_for_several_rows(found: Found, name: str, world: int):
    tokens = {limit: [each["tokens"] for each in found[world][name, limit]] for limit in LIMITS}
    whole, some, hardly_one = (tokens[limit] for limit in LIMITS)
    assert whole[0] < 0.8 * whole[1]
    assert some[0] < some[1]
    assert hardly_one[0] <= hardly_one[1]
