"""The tests that the hook of every framework must pass, written once.

The tests of a framework subclass `HookConformance` in a file of their own, describe in its attributes what the hook
captures, and provide a `Job`; the tests then make the same queries for each framework and expect the same results from
Trial. No test is to be overridden: what differs between frameworks is an attribute of the class. Nothing here imports a
framework.

    class TestPyTorch(HookConformance):
        module, framework = tt, "pytorch"
        number, tensor, collection, gradient = "MSELoss_output_0", "Net_fc.weight", "weights", "gradient/Net_fc.weight"

        def make_job(self, hook):
            return PyTorchJob(hook)

A test belongs to `HookConformance` if code of a binding decides its result. What the recorder, the writer and
`hooks/core/configuration` decide for all bindings alike is tested once, with the small hook of `support.array_hook`:
that is `CoreConformance`.

Each binding decides:

- `capture`: names, values, gradients, the built-in and the default collections, what is due at a step, and modes,
- `calls`: how values are converted, and which step is open,
- `construction`: the arguments, the classes of the module, and its get_hook,
- `life`: what happens to training and memory if the hook is a copy, is off, fails, is closed or continues a run.

The same for all of them are:

- `collections`: include_regex, warnings, and the steps of a save configuration,
- `form`: reductions, quantiles, digests, histograms and event files,
- `configuration`: JSON, bad values, and the current hook,
- `run`: workers, folders in use, and reading meanwhile.
"""

from __future__ import annotations

from .calls import CallTests
from .capture import CaptureTests
from .collections import CollectionTests
from .configuration import ConfigurationTests
from .construction import ConstructionTests
from .form import FormTests
from .job import HookTests, Job
from .life import Broken, CopyTests, LifeTests
from .run import RunTests

__all__ = ["BindingTests", "Broken", "CallTests", "CoreConformance", "HookConformance", "HookTests", "Job", "LifeTests"]


class BindingTests(CaptureTests, CallTests, ConstructionTests, LifeTests):
    """The tests of what a binding decides."""


class HookConformance(BindingTests, CopyTests):
    """All tests of the hook of a framework."""


class CoreConformance(CollectionTests, FormTests, ConfigurationTests, RunTests):
    """The tests of what is the same for every hook."""
