"""Files of a golden-redaction run in addition to those of every run."""

ENTRIES = "golden_entries.jsonl"
PROBES = "golden_probes.jsonl"
TENSORS = "golden_tensors.jsonl"
REFERENCE = "golden_reference.json"

FILES = {
    ENTRIES: "every state visited, with its tokens and rollouts; records/schema.py describes it",
    PROBES: "pass rates of its probes: one object per problem and share",
    TENSORS: "changes of every weight tensor: one object per measured update",
    REFERENCE: "log-probs of the golden solutions' tokens before its first update, by problem",
}
