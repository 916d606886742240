"""The replicas that a distribution strategy of TensorFlow has in this process."""

from __future__ import annotations

from typing import Any

from .backend import IS_TENSORFLOW


def replicas(strategy: Any) -> list[str]:
    """The names of the devices that replicas of this process run on; none where there is no strategy."""
    if not IS_TENSORFLOW or strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy":
        return []
    return list(strategy.extended.worker_devices)


def strategy_here() -> Any:
    """The strategy whose scope, or replica, this is; None without one."""
    if not IS_TENSORFLOW:
        return None
    import tensorflow as tf

    return tf.distribute.get_strategy() if tf.distribute.has_strategy() else None


def replica_here() -> int | None:
    """The number, among those of this process, of the replica that runs or is traced here; None outside of any."""
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
    """What one replica has of a value, or of a variable; the value itself where it is of no replicas."""
    if not IS_TENSORFLOW:
        return value
    import tensorflow as tf

    inner = getattr(value, "value", None)
    found = inner if isinstance(inner, tf.distribute.DistributedValues) else value
    if isinstance(found, tf.distribute.DistributedValues):
        # Under a strategy of several processes, of each replica of this one.
        values = found.values
        return values[min(replica, len(values) - 1)]
    return value
