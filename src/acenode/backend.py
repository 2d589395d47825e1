"""The kind of machine that programs run on."""

from typing import Any

import jax


def backend() -> str:
    """`cpu`, `gpu` or `tpu`: that of the default device, where one is set (`jax.default_device`)."""
    device: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform
