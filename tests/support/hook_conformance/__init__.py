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
"""

from __future__ import annotations

from .capture import CaptureTests
from .configuration import ConfigurationTests
from .form import FormTests
from .job import HookTests, Job
from .run import RunTests

__all__ = ["HookConformance", "HookTests", "Job"]


class HookConformance(CaptureTests, FormTests, ConfigurationTests, RunTests):
    """All tests of a hook."""
