"""Files of a Fast DAPO run in addition to those of every run."""

PROMPTS = "prompts.jsonl"
PROMPT_TEXTS = "prompt_texts.jsonl"

FILES = {
    PROMPTS: "the history of each prompt: one object per screening, continuation or training",
    PROMPT_TEXTS: "each prompt once: its text, ground truth and data source",
}
