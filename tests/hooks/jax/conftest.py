"""The devices of the tests of JAX."""

from __future__ import annotations

import os

# Read when JAX makes its devices: with several, arrays can be sharded.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
