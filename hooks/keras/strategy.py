"""The replicas that a distribution strategy of TensorFlow has in this process."""

from __future__ import annotations

from typing import Any

from .backend import IS_TENSORFLOW


def replicas(strategy: Any) -> list[str]:
    """Return the devices that replicas of this process run on; an empty list without a strategy."""
    if not IS_TENSORFLOW or strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy":
        return []
    return list(strategy.extended.worker_devices)


def strategy_here() -> Any:
    """Return the strategy in whose scope or replica this code runs, or None."""
    if not IS_TENSORFLOW:
        return None
    import tensorflow as tf

    return tf.distribute.get_strategy() if tf.distribute.has_strategy() else None


def replica_here() -> int | None:
    """Return the number, within this process, of the replica that runs or is traced here; None outside of replicas."""
    strategy = strategy_here()
    if strategy is None:
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None:
        return None
    number = int(tf.get_static_value(context.replica_id_in_sync_group) or 0)
    return number % max(1, len(replicas(strategy)))


def value_of(replica: int, value: Any) -> Any:
    """Return the part of a value or a variable that belongs to one replica; the value itself if it has no parts."""
    if not IS_TENSORFLOW:
        return value
    import tensorflow as tf

    inner = getattr(value, "value", None)
    found = inner if isinstance(inner, tf.distribute.DistributedValues) else value
    if isinstance(found, tf.distribute.DistributedValues):
        # Under a strategy of several processes these are the values of this process only.
        values = found.values
        return values[min(replica, len(values) - 1)]
    return value
