"""Rules on results that must be equal in every bit: those of replicas, and of repeated steps."""

from __future__ import annotations

from collections import Counter, defaultdict

from ...errors import InsufficientInformationForRuleInvocation
from ...format.index_types import SavedTensor
from ...statistics.digest import digest_of_array
from ..parameter import regexes, words
from ..reader import Selector, StepView
from .base import BuiltinRule


class ReplicaDivergence(BuiltinRule):
    """Fires if replicas of a tensor differ in any bit.

    After each update all workers of data parallel training have the same weights. The digest of each worker's tensor is
    compared with the one that most workers have. `ReductionConfig(digest=True)` suffices; if only raw values were
    saved, they are read. The rule needs every worker (`include_workers="all"`), and is not for sharded parameters.
    """

    collection_names: tuple[str, ...] = words("weights,biases", "tensors that must be equal in all workers")
    tensor_regex: tuple[str, ...] | None = regexes(None, "names of further tensors that must be equal")

    def judge(self, view: StepView) -> None:
        selector = Selector(self.collection_names, self.tensor_regex or ())
        replicas: defaultdict[str, list[tuple[SavedTensor, int]]] = defaultdict(list)
        rows = self.rows(view, selector)
        for row in rows:
            digest = _digest(view, row)
            if digest is not None:
                replicas[row.name].append((row, digest))
        if not replicas:
            raise InsufficientInformationForRuleInvocation(
                self.rule_name,
                f"of tensor {rows[0].name!r} neither its digest nor its raw value was saved; set "
                f'hook.get_collection("{self.collection_names[0] if self.collection_names else "default"}")'
                ".reduction_config = ReductionConfig(digest=True)",
            )
        for of_name in replicas.values():
            self._compare(of_name)

    def _compare(self, replicas: list[tuple[SavedTensor, int]]) -> None:
        # If two digests are equally frequent, that of the first worker counts.
        ((most, count),) = Counter(digest for _, digest in replicas).most_common(1)
        for row, digest in replicas:
            if digest != most:
                sentence = f"does not have the bits that {count} of {len(replicas)} workers have"
                self.fires(row, len(replicas) - count, 0, sentence)


class SilentCorruption(BuiltinRule):
    """Fires if a step that was repeated from the same state has different results.

    A correct processor computes the same bits each time, if its kernels are deterministic. A faulty one may compute
    wrong numbers without any error. `tensortrial.hooks.pytorch.Replay` repeats steps, and saves the number of runs that
    differ as `replay/<name>`.
    """

    collection_names: tuple[str, ...] = words("replays", "counts of the runs of a step that differ from the others")

    def judge(self, view: StepView) -> None:
        for row in self.rows(view, Selector(self.collection_names)):
            if row.scalar:
                runs = "one run" if row.scalar == 1 else f"{row.scalar:g} runs"
                self.fires(row, row.scalar, 0, f"has other bits in {runs} of the same step from the same state")


def _digest(view: StepView, row: SavedTensor) -> int | None:
    if row.digest is None and row.has_raw:
        return digest_of_array(view.values([row])[0])
    return row.digest
