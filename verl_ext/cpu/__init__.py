"""verl's v1 trainer on a machine without an accelerator.

It uses extension points of verl, vLLM and the standard library, except for one patched default (`process_group`).
`configs/backend/cpu.yaml` has the matching settings.
"""


def register() -> None:
    """Make verl run on the CPU in this process. Light: neither vLLM nor the trainer is imported."""
    from verl_ext.cpu import distribution_alias, platform, process_group, replica

    distribution_alias.install()
    platform.register()
    process_group.use_gloo()
    replica.register()
