"""A griffe extension that shows the arguments of a hook's constructor in the API reference.

`accepts_fields_of` turns the fields of a dataclass into the arguments of a constructor when the module is imported. The
reference is made from the source alone, so this extension does the same there.
"""

from __future__ import annotations

from typing import Any

import griffe

_DECORATOR = "accepts_fields_of"


class HookArguments(griffe.Extension):
    """Gives each constructor with the decorator the parameters and the documentation of its dataclass."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Change the constructors of a loaded package."""
        griffe.DataclassesExtension().on_package(pkg=pkg, loader=loader)  # which would run after this one
        for hook in _classes(pkg):
            constructor = hook.members.get("__init__")
            if isinstance(constructor, griffe.Function):
                for decorator in constructor.decorators:
                    value = decorator.value
                    if isinstance(value, griffe.ExprCall) and value.canonical_path.endswith(f".{_DECORATOR}"):
                        _set_arguments(constructor, pkg.modules_collection[value.arguments[0].canonical_path])


def _classes(module: griffe.Module) -> list[griffe.Class]:
    inner = [each for part in module.modules.values() if not part.is_alias for each in _classes(part)]
    return [*(each for each in module.classes.values() if not each.is_alias), *inner]


def _set_arguments(constructor: griffe.Function, options: griffe.Class) -> None:
    texts = [each.docstring for each in [*reversed(options.mro()), options] if each.docstring is not None]
    constructor.parameters = options.members["__init__"].parameters
    constructor.docstring = griffe.Docstring(
        "\n\n".join(text.value for text in texts),
        parent=constructor,
        parser=texts[0].parser,
        parser_options=texts[0].parser_options,
    )
