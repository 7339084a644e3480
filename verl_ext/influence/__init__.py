"""Influence of a training sample: the inner product of its gradient with a validation set's."""
