"""The algorithm, pure: which prompts are screened, continued and trained on, and with which weights."""
