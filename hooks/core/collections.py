"""The collections of a hook: which there are, and which of them are saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensortrial.config.collection import Changes, Collection, CollectionKeys, check_collection_name
from tensortrial.config.save_config import DEFAULT_SAVE_INTERVAL, SaveConfig
from tensortrial.errors import InvalidCollectionConfiguration


class CollectionManager:
    """Collections by name. New ones are made by `factory`, and follow `save_config` until they are given their own.
    `save_interval` is that of a save configuration that has none."""

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
        self._parameters: dict[str, str] = {}
        for name in sorted(self._builtin):
            self.get(name)
        self._collections[CollectionKeys.ALL].include(".*")

    def get(self, name: str, create: bool = True) -> Collection | None:
        """Return the collection of that name, made if there is none. Raises InvalidCollectionConfiguration for what
        cannot be a name."""
        if not isinstance(name, str):
            check_collection_name(name)
        if name not in self._collections and create:
            check_collection_name(name)
            self.add(self._factory(name))
        return self._collections.get(name)

    def require(self, name: str) -> Collection:
        """The collection of that name, made if there is none."""
        collection = self.get(name)
        assert collection is not None
        return collection

    def add_gradient(self, name: str, parameter: str) -> None:
        """Put a gradient into its collection, and link it to the parameter that it is of."""
        self._parameters[name] = parameter
        self.require(CollectionKeys.GRADIENTS).add_tensor_names([name])

    def parameter_of(self, name: str) -> str | None:
        """Return the name of the parameter that a gradient is of, None for other tensors."""
        return self._parameters.get(name)

    def add(self, collection: Collection) -> None:
        """Add a collection, or put it in the place of the one of its name. Raises InvalidCollectionConfiguration for
        what cannot be a name."""
        check_collection_name(collection.name)
        self._complete(collection)
        self._collections[collection.name] = collection
        Changes.patterns += 1
        Changes.names += 1

    def _complete(self, collection: Collection) -> None:
        """What the collection's save configuration leaves open is the hook's."""
        if collection.save_config is None:
            collection.save_config = self._save_config.copy()
        else:
            collection.save_config.inherit(self._save_config)
            collection.save_config.set_default_interval(self._save_interval)

    def save(self, names: Iterable[str]) -> None:
        """Have the collections of these names saved."""
        for name in names:
            self.get(name)
            self._saved.add(name)

    def choose(self, names: Iterable[str], include_regex: Iterable[str] | str | None, save_all: bool) -> None:
        """Have the collections of these names saved, with tensors that match `include_regex`, or all with
        `save_all`."""
        self.save(names)
        if include_regex:
            self.require(CollectionKeys.DEFAULT).include(include_regex)
            self.save([CollectionKeys.DEFAULT])
        if save_all:
            self.save([CollectionKeys.ALL])

    @property
    def saved_names(self) -> list[str]:
        return sorted(self._saved)

    def saved(self) -> list[Collection]:
        return [self._collections[name] for name in self.saved_names]

    def complete(self) -> None:
        """Fill in what the save configurations leave open: they may have been exchanged since the last step."""
        for collection in self._collections.values():
            self._complete(collection)

    def by_name(self) -> dict[str, Collection]:
        return dict(self._collections)

    def __iter__(self) -> Iterator[Collection]:
        return iter(self._collections.values())

    def check(self) -> None:
        """Raises InvalidCollectionConfiguration for a custom collection that is saved and can never match."""
        for collection in self.saved():
            if collection.name not in self._builtin and collection.is_empty:
                raise InvalidCollectionConfiguration(
                    collection.name,
                    "it is to be saved, but has no include_regex, no tensor names and no modules; call "
                    f'hook.get_collection("{collection.name}").include(...) before training',
                )

    def fingerprint(self) -> tuple[object, ...]:
        """Changes when any collection starts to match, or to keep, something else."""
        return tuple(collection.fingerprint for collection in self._collections.values())
