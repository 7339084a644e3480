"""What a run of golden redaction writes into its folder beside what every run does."""

ENTRIES = "golden_entries.jsonl"
PROBES = "golden_probes.jsonl"
TENSORS = "golden_tensors.jsonl"
REFERENCE = "golden_reference.json"

FILES = {
    ENTRIES: "every state visited, with its tokens and rollouts; records/schema.py describes it",
    PROBES: "pass rates of its probes: one object a problem and share",
    TENSORS: "what its updates did to every weight tensor: one object a measured update",
    REFERENCE: "log-probs of the golden solutions' tokens before its first update, by problem",
}
