"""Language models in GGUF files: content, tokenizer, and logits computed only from the file."""
