"""What a run of Fast DAPO writes into its folder beside what every run does."""

PROMPTS = "prompts.jsonl"

FILES = {PROMPTS: "what became of each prompt: one object a screening, continuation or training"}
