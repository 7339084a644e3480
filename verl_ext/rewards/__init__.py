"""Reward functions in the form that verl's `custom_reward_function` expects, one file per task."""
