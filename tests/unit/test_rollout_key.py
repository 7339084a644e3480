"""Names of rollouts: what is joined can be split again."""

from hypothesis import given
from hypothesis import strategies as st

from verl_ext.serving.rollout_key import output_keys, rollout_key, session_key, session_of, uid_of


@given(uid=st.text("ab_0", min_size=1), session=st.integers(0, 10**6), index=st.integers(0, 99))
def test_a_name_gives_back_its_prompt_and_its_session(uid: str, session: int, index: int):
    key = rollout_key(uid, session, index)
    assert (uid_of(key), session_of(key)) == (uid, session)


@given(uid=st.text("ab_0", min_size=1), session=st.integers(0, 10**6), index=st.integers(0, 99))
def test_the_last_output_names_all_of_its_session_and_no_other(uid: str, session: int, index: int):
    keys = output_keys(rollout_key(uid, session, index))
    assert keys == [rollout_key(uid, session, number) for number in range(index + 1)]
    assert {session_key(key) for key in keys} == {session_key(keys[0])}
    assert session_key(rollout_key(uid, session + 1, index)) != session_key(keys[0])
