"""The hook for MXNet Gluon.

import tensortrial.hooks.mxnet as tt

hook = tt.Hook("runs/digits")
hook.register_block(net)
hook.register_block(loss)
"""

from __future__ import annotations

from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, importing

from ..core import current_hook
from ..core.base_hook import BaseHook
from ..core.configuration.collections import ModuleCollection
from ..core.configuration.options import OF_NETWORKS, Framework, HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import Recorder, guarded
from ..core.user_values import array_of

with importing("mxnet", "mxnet", "the MXNet hook"):
    import mxnet as mx

from mxnet import gluon

from .arrays import converted
from .capture import Capture


class Collection(ModuleCollection):
    """A collection that also accepts blocks of a registered model."""

    def add_block_tensors(self, block: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Include the inputs of a block of a registered model, its outputs, or both.

        Args:
            block: A `gluon.Block`.
            inputs: Save what the block is called with.
            outputs: Save what the block returns.

        Raises:
            ConfigurationError: `block` is not a `gluon.Block`.
        """
        _check_block(block, "add_block_tensors")
        self.add_tensors_of(block, inputs, outputs)


_FRAMEWORK = Framework(
    "mxnet",
    {"mxnet": mx.__version__},
    builtin=[*OF_NETWORKS, CollectionKeys.HEALTH],
    always_saved=[CollectionKeys.LOSSES],
    by_default=[CollectionKeys.HEALTH],
    collection_type=Collection,
    errors_of_training=(mx.MXNetError,),
)


class Hook(BaseHook):
    """A hook that saves the tensors of a Gluon job.

    `help(Hook.__init__)` lists the arguments. The losses are always saved. After construction no error of the hook
    reaches training: the hook logs the first one and turns itself off (TENSORTRIAL_STRICT=1 raises it instead). Errors
    of MXNet itself are always raised, because they belong to the job's computation, and MXNet reports them only once.

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        self.capture = Capture(self.recorder)
        current_hook.made(self)

    # Methods that users call.

    def register_block(self, block: Any) -> None:
        """Save the tensors of a model or of a loss.

        Of a model these are its parameters, their gradients, and the inputs and outputs of its blocks; each forward of
        the model begins a step. Of a loss they are its outputs, in the collection `losses`, and its inputs. Several
        models may be registered. Registering one twice changes nothing.

        Args:
            block: A model, or a `gluon.loss.Loss`.

        Raises:
            ConfigurationError: `block` is not a `gluon.Block`.
        """
        _check_block(block, "register_block")
        self.recorder.warn_if_copy()
        self.capture.register_block(block)

    register_hook = register_block

    def _array_of(self, value: Any) -> tuple[Array, bool]:
        return array_of(value, converted), False

    @guarded
    def _let_go(self) -> None:
        self.capture.let_go()


get_hook = current_hook.getter(Hook.create_from_json_file)


def _check_block(block: Any, method: str) -> None:
    if not isinstance(block, gluon.Block):
        raise ConfigurationError(f"{method} takes a gluon.Block, got {type(block).__name__}")
