"""What a run with influence scores writes into its folder beside what every run does."""

INFLUENCE = "influence.jsonl"

FILES = {INFLUENCE: "every sample's score: one object a rollout"}
