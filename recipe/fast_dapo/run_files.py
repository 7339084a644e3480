"""What a run of Fast DAPO writes into its folder beside what every run does."""

PROMPTS = "prompts.jsonl"
PROMPT_TEXTS = "prompt_texts.jsonl"

FILES = {
    PROMPTS: "what became of each prompt: one object a screening, continuation or training",
    PROMPT_TEXTS: "each prompt once: what it says, its ground truth and data source",
}
