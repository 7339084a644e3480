"""Golden redaction's actor on a CUDA device: one forward serves all tokens of a state."""

from gpu_cases import golden_at_size


def test_one_forward_at_1_5b_is_the_same_update_as_a_row_a_token():
    difference, gradient_error = golden_at_size("cuda", "1.5B", state_tokens=1024)
    assert difference < 0.2  # nats; bfloat16 matrix products of other shapes
    assert gradient_error < 0.02
