"""Names of rollouts in the data plane, `{uid}_{session}_{index}`: made as verl's agent loop makes them. Pure.

A prompt's sessions number its rollouts; an agent loop may give several outputs a session, which the index numbers. A
uid may have underscores of its own.
"""


def rollout_key(uid: str, session: int, index: int) -> str:
    """The name of one output of one rollout of the prompt `uid`."""
    return f"{uid}_{session}_{index}"


def output_keys(last: str) -> list[str]:
    """The names of all outputs of a session, of which `last` is the last: that is the one its reward is about."""
    session, _, index = last.rpartition("_")
    return [f"{session}_{number}" for number in range(int(index) + 1)]


def uid_of(key: str) -> str:
    """The prompt of a rollout."""
    return key.rsplit("_", 2)[0]


def session_key(key: str) -> str:
    """What all outputs of a rollout have in common, and no other rollout has."""
    return key.rpartition("_")[0]


def session_of(key: str) -> int:
    """The number of a rollout among those of its prompt."""
    return int(key.rsplit("_", 2)[1])
