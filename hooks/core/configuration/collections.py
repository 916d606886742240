"""The collections of a hook, and which of them are saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tensortrial.config.changes import Changes
from tensortrial.config.collection import Collection, CollectionKeys, check_collection_name
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import DEFAULT_SAVE_INTERVAL, SaveConfig
from tensortrial.suggestions import near_names

from ..log import logger

ATTENTION = "attention"
_TENSORS = r"^(?!hyperparameters/|model_inputs_|labels_)(?!.*(_input_|/inputs))"
"""All tensors but inputs, which are outputs of other layers: parameters, gradients, outputs, updates and moments."""


class CollectionManager:
    """The collections of a hook, by name.

    Args:
        builtin: The names of the framework's own collections.
        save_config: The save configuration of the hook, which collections without their own follow.
        factory: The class of new collections.
        save_interval: The interval of a save configuration that has none, in steps.
    """

    def __init__(
        self,
        builtin: Iterable[str],
        save_config: SaveConfig,
        factory: type[Collection] = Collection,
        save_interval: int = DEFAULT_SAVE_INTERVAL,
    ) -> None:
        self._factory = factory
        self._save_config = save_config
        self._save_interval = save_interval
        self._collections: dict[str, Collection] = {}
        self._builtin = frozenset({CollectionKeys.ALL, CollectionKeys.DEFAULT, *builtin})
        self._saved: set[str] = set()
        self.parameters: dict[str, str] = {}
        """The parameter of each gradient, by their names."""
        self._unchecked: set[str] = set()
        self._compared: set[str] = set()
        self._completed_at = -1
        """The number of changes after which all save configurations were completed."""
        for name in sorted(self._builtin):
            self.get(name)
        self._collections[CollectionKeys.ALL].include(".*")

    def get(self, name: str, create: bool = True) -> Collection | None:
        """Return the collection of that name. Make a missing one, unless `create` is False.

        Raises:
            InvalidCollectionConfiguration: A collection cannot have this name.
        """
        if not isinstance(name, str):
            check_collection_name(name)
        name = name.strip(" ")  # as in a list of names
        if name not in self._collections and create:
            check_collection_name(name)
            self.add(self._factory(name))
        return self._collections.get(name)

    def require(self, name: str) -> Collection:
        """Return the collection of that name. Make a missing one."""
        collection = self.get(name)
        assert collection is not None
        return collection

    def add_gradient(self, name: str, parameter: str) -> None:
        """Add a gradient to its collection, and link it to its parameter."""
        self.parameters[name] = parameter
        self.require(CollectionKeys.GRADIENTS).add_tensor_names([name])

    def add(self, collection: Collection) -> None:
        """Add a collection. It replaces one of the same name.

        Raises:
            InvalidCollectionConfiguration: A collection cannot have its name.
        """
        check_collection_name(collection.name)
        self._complete(collection)
        self._collections[collection.name] = collection
        Changes.patterns += 1
        Changes.names += 1

    def _complete(self, collection: Collection) -> None:
        """Fill in what the collection's save configuration leaves open, from the hook's."""
        if collection.save_config is None:
            collection.save_config = self._save_config.copy()
        else:
            collection.save_config.inherit(self._save_config)
            collection.save_config.set_default_interval(self._save_interval)

    def follow(self, save_config: SaveConfig) -> None:
        """Replace the hook's save configuration, in the collections that follow it, too."""
        for collection in self:
            if collection.save_config == self._save_config:
                collection.save_config = save_config.copy()
        self._save_config = save_config

    def include(self, names: Iterable[str]) -> None:
        """Add the collections of these names to the saved ones, without a warning if one has no patterns."""
        for name in names:
            self.get(name)
            self._saved.add(name)
            self._unchecked.discard(name)

    def choose(self, names: Iterable[str], regexes: Iterable[str] | str | None = None, save_all: bool = False) -> None:
        """Save the collections of these names, tensors that match one of `regexes`, and with `save_all` all tensors."""
        self.include(chosen := list(names))
        self._unchecked.update(chosen)
        if regexes:
            self.require(CollectionKeys.DEFAULT).include(regexes)
            self.include([CollectionKeys.DEFAULT])
        if save_all:
            self.include([CollectionKeys.ALL])

    @property
    def saved_names(self) -> list[str]:
        """The names of the collections that are saved, sorted."""
        return sorted(self._saved)

    def saved(self) -> list[Collection]:
        """Return the collections that are saved, sorted by name."""
        return [self._collections[name] for name in self.saved_names]

    def complete(self) -> None:
        """Fill in what the save configurations leave open: they may have been replaced since the last step."""
        # This is called at each step.
        if self._completed_at != (changes := Changes.count()):
            for collection in self:
                self._complete(collection)
            self._completed_at = changes  # read before: another thread may change a collection meanwhile

    def by_name(self) -> dict[str, Collection]:
        """Return all collections by their names."""
        return dict(self._collections)

    def __iter__(self) -> Iterator[Collection]:
        return iter(list(self._collections.values()))  # another thread may add one

    def fill(self, name: str) -> Collection:
        """Return the collection of this name, which a call saves a tensor in."""
        self._unchecked.discard(name)
        return self.require(name)

    def warn_of_empty(self) -> None:
        """Log a warning, once, for each chosen custom collection that matches no tensor, because it has no patterns."""
        for name in sorted(self._unchecked - self._builtin):
            if self._collections[name].is_empty:
                self._unchecked.remove(name)
                others = ", ".join(sorted(set(self._collections) - {name}))
                logger.warning(
                    "collection %(name)r of include_collections saves nothing: it has no include_regex, no tensor "
                    'names and no modules%(near)s; call hook.get_collection("%(name)s").include(...) before training, '
                    'or fill it by hook.save_tensor(..., collections_to_write="%(name)s"). Known collections: '
                    "%(others)s",
                    {"name": name, "near": self._near(name), "others": others},
                )

    def warn_of_unmatched(self, due: Iterable[str], tensors: Callable[[], Iterable[str]]) -> None:
        """Log a warning, once for each collection, if its regular expressions match no tensor of its first saved step.

        The step saves the collections `due`, and `tensors` returns the names of its tensors.
        """
        new = [name for name in sorted(due) if name not in self._compared]
        if not new:
            return
        self._compared.update(new)
        known = list(tensors())
        for name in new:
            # The patterns of built-in collections are the framework's.
            if name not in self._builtin or name == CollectionKeys.DEFAULT:
                for pattern in self._collections[name].patterns:
                    if not any(pattern.search(each) for each in known):
                        self._warn_of_unmatched(name, pattern.pattern, known)

    def _warn_of_unmatched(self, name: str, regex: str, known: Sequence[str]) -> None:
        near = near_names(re.sub(r"\W+", "_", regex).strip("_"), known)
        hint = f"; near are {', '.join(near)}" if near else ""
        logger.warning(
            "the regular expression %r of collection %r matches no tensor of the first saved step%s", regex, name, hint
        )

    def _near(self, name: str) -> str:
        near = near_names(name, [known for known in self._collections if known != name], 1)
        return f"; did you mean {near[0]!r}?" if near else ""

    def fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes whenever a collection matches or keeps something else."""
        return tuple(collection.fingerprint for collection in self)


class ModuleCollection(Collection):
    """A collection that can also include the inputs and outputs of modules.

    Some frameworks call them layers or blocks.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules: list[tuple[Any, bool, bool]] = []

    def add_tensors_of(self, module: Any, inputs: bool, outputs: bool) -> None:
        """Include a module's inputs, its outputs, or both, once its name is known.

        Args:
            module: The module, layer or block.
            inputs: Include its inputs.
            outputs: Include its outputs.
        """
        self._modules.append((module, inputs, outputs))

    @property
    def is_empty(self) -> bool:
        """True if the collection has no patterns, no tensors and no modules."""
        return super().is_empty and not self._modules

    def resolve(self, names: Mapping[Any, str]) -> None:
        """Replace each module whose name is known by the names of its tensors."""
        if not self._modules:
            return  # as at most steps
        unnamed = []
        for module, inputs, outputs in self._modules:
            if module not in names:
                unnamed.append((module, inputs, outputs))
                continue
            directions = [("input", inputs), ("output", outputs)]
            self.include(f"^{re.escape(names[module])}_{kind}_" for kind, wanted in directions if wanted)
        if len(unnamed) < len(self._modules):
            self._modules = unnamed

    def forget_parts(self) -> None:
        """Keep no reference to a module any more."""
        self._modules = []


def define_health(collections: CollectionManager) -> None:
    """Give the collection `health` its tensors and statistics, which one pass over each tensor computes."""
    health = collections.require(CollectionKeys.HEALTH)
    health.include(_TENSORS)
    health.reduction_config = ReductionConfig(
        reductions=(
            *("mean", "std", "rms", "skewness", "kurtosis"),
            *("nan_count", "inf_count", "zero_count", "subnormal_count", "saturated_count"),
        ),
        abs_reductions=("mean", "max"),
        norms=("l2",),
    )


def define_attention(collections: CollectionManager) -> None:
    """Give the collection `attention` its tensors, unless the user has."""
    attention = collections.require(ATTENTION)
    if attention.is_empty:
        attention.include(f"^{ATTENTION}/")
        attention.reduction_config = ReductionConfig(reductions=["min", "max", "mean"], save_raw_tensor=True)
