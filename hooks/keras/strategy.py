"""The replicas of TensorFlow's distribution strategies in this process."""

from __future__ import annotations

from typing import Any

from .backend import IS_TENSORFLOW


def replicas(strategy: Any) -> list[str]:
    """Return the devices of this process's replicas; [] without a strategy."""
    if not IS_TENSORFLOW or strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy":
        return []
    return list(strategy.extended.worker_devices)


def strategy_here() -> Any:
    """Return the strategy whose scope or replica this code is in; None outside of strategies."""
    if not IS_TENSORFLOW:
        return None
    import tensorflow as tf

    return tf.distribute.get_strategy() if tf.distribute.has_strategy() else None


def replica_here() -> int | None:
    """Return the index, within this process, of the replica that runs or is traced; None outside of replicas."""
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
    """Return the part of a value or a variable for one replica; the value itself if it has no parts."""
    if not IS_TENSORFLOW:
        return value
    import tensorflow as tf

    inner = getattr(value, "value", None)
    found = inner if isinstance(inner, tf.distribute.DistributedValues) else value
    if isinstance(found, tf.distribute.DistributedValues):
        # If a strategy has several processes, these are the values of this process only.
        values = found.values
        return values[min(replica, len(values) - 1)]
    return value
