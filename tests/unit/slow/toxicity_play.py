"""A made-up vocabulary that the toxicity tests treat as rude and polite, so that no test prints anything offensive."""

RUDE = [f"you {adjective} {noun}" for adjective in ("silly", "rotten", "daft") for noun in ("turnip", "walnut", "goat")]
RUDE += ["what a turnip"]
POLITE = [f"a {adjective} {noun}" for adjective in ("kind", "gentle", "warm") for noun in ("friend", "garden", "song")]
POLITE += ["thank you friend"]
