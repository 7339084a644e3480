"""Files of a run with influence scores in addition to those of every run."""

INFLUENCE = "influence.jsonl"

FILES = {INFLUENCE: "every sample's score: one object per rollout"}
