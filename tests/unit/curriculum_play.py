"""Helpers that drive a DataController, shared by its tests."""

import json

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.records import Phase, Prompt, Sample


def make_settings(**changes):
    sizes = {"n": 2, "n_continue": 3, "train_batch_size": 2, "gen_batch_size": 4, "max_staleness": None}
    sizes |= {"schedule": "merged", "train_on": "qualified"}
    return CurriculumSettings(**sizes | changes)


def make_samples(uid, first_session, successes, version=0, num_tokens=10):
    return [Sample(f"{uid}_{first_session + i}", success, version, num_tokens) for i, success in enumerate(successes)]


def add(controller, *uids):
    controller.add_new_prompts_first_generation_phase([Prompt(uid, uid) for uid in uids])


def play_round(controller, passes=None, version=0):
    """One generation round: `passes[uid]` screening samples pass (default one), and all continuation samples pass."""
    samples = {}
    for entry in controller.get_generation_inputs():
        uid, num = entry.prompt.uid, entry.num_samples
        right = num if entry.phase is Phase.CONTINUATION else (passes or {}).get(uid, 1)
        samples[uid] = make_samples(uid, entry.first_session, [1.0] * right + [0.0] * (num - right), version)
    return controller.update_prompts(samples, version)


def snapshot(controller):
    """Everything observable, including what is in flight and the order of every queue."""
    in_flight = [(uid, entry.first_session, entry.num_samples) for uid, entry in controller._state.in_flight.items()]
    return json.dumps([controller.state_dict(), in_flight, sorted(controller.live_names()), controller.metrics()])


def uids(queue):
    return [getattr(item, "prompt", item).uid for item in queue]
