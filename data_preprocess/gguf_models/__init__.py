"""Language models in GGUF files: what they hold, their tokenizer, and their logits computed from the file alone."""
