"""Which rollouts a run keeps, and which parts of long texts."""

from hypothesis import given
from hypothesis import strategies as st

from verl_ext.run.rollout_texts import best_and_worst, cut, draw_prompts, fit

TEXTS = st.text(max_size=300)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9))
def test_the_best_and_the_worst_are_kept_and_one_of_equals(rewards):
    places = best_and_worst(rewards)
    assert rewards[places[0]] == max(rewards)
    assert rewards[places[-1]] == min(rewards)
    assert len(places) == min(2, len(set(rewards)))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 500))
def test_a_step_draws_the_same_prompts_when_it_is_repeated(size, number, step):
    groups = {f"uid{place}": [f"uid{place}_0_0"] for place in range(size)}
    drawn = draw_prompts(groups, number, step)
    assert drawn == draw_prompts(groups, number, step)
    assert len(set(drawn)) == len(drawn) == min(size, number)
    assert set(drawn) <= set(groups)


def test_in_the_long_run_every_prompt_is_drawn():
    groups = {f"uid{place}": [] for place in range(8)}
    assert {name for step in range(60) for name in draw_prompts(groups, 2, step)} == set(groups)


@given(TEXTS, st.integers(0, 300))
def test_a_cut_text_keeps_its_beginning_and_its_end(text, room):
    found = cut(text, room)
    if len(text) <= room:
        assert found == text
        return
    head, left_out, tail = found.partition(f" […{len(text) - room:,} characters…] ")
    assert left_out
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == room


@given(TEXTS, TEXTS, st.integers(4, 400))
def test_both_texts_have_room_and_none_is_wasted(prompt, response, room):
    kept = [text.partition(" […") for text in fit(prompt, response, room)]
    if len(prompt) + len(response) <= room:
        assert fit(prompt, response, room) == (prompt, response)
        return
    sizes = [
        len(text) if not mark else len(text) + len(rest.partition("characters…] ")[2])
        for text, mark, rest in kept
        if "[…" not in prompt + response
    ]
    assert sum(sizes) <= room
