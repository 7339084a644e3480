"""Names of rollouts in the data plane, `{uid}_{session}_{index}`: in the format of verl's agent loop. Pure.

A prompt's sessions number its rollouts; an agent loop may give several outputs per session, which the index numbers. A
uid may contain underscores.
"""


def rollout_key(uid: str, session: int, index: int) -> str:
    """The name of one output of one rollout of the prompt `uid`."""
    return f"{uid}_{session}_{index}"


def output_keys(last: str) -> list[str]:
    """The names of all outputs of a session whose last one, which has the reward, is `last`."""
    session, _, index = last.rpartition("_")
    return [f"{session}_{number}" for number in range(int(index) + 1)]


def uid_of(key: str) -> str:
    """The prompt of a rollout."""
    return key.rsplit("_", 2)[0]


def session_key(key: str) -> str:
    """The part that all outputs of a rollout share with no other rollout."""
    return key.rpartition("_")[0]


def session_of(key: str) -> int:
    """The number of a rollout within its prompt."""
    return int(key.rsplit("_", 2)[1])
