"""Every public name says what it does, its arguments, what it returns and which errors it raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe

import tensortrial
from support.public_names import INTERNAL_METHODS, list_public_names, list_undocumented_names, load_package

# A docstring of a function begins with one of these. A verb that is missing may be added; a noun may not.
VERB = re.compile(
    r"(Acquire|Add|Allow|Answer|Append|Apply|Attach|Begin|Bind|Build|Call|Capture|Check|"
    r"Choose|Clear|Close|Collect|Combine|Compact|Compare|Compute|Configure|Continue|Convert|"
    r"Copy|Count|Create|Define|Delete|Detach|Disable|Discard|Draw|Enable|End|Ensure|Evaluate|"
    r"Execute|Export|Fetch|Find|Finish|Flush|Follow|Forget|Format|Import|Include|Invoke|"
    r"Iterate|Keep|Limit|List|Load|Make|Map|Mark|Match|Measure|Merge|Name|Notify|Open|Parse|"
    r"Pass|Plot|Poll|Prepare|Print|Publish|Query|Raise|Read|Record|Refresh|Register|Release|"
    r"Remove|Render|Repeat|Replace|Report|Require|Reset|Resolve|Restore|Return|Run|Save|Scan|"
    r"Select|Serve|Set|Show|Skip|Sort|Split|Start|Stop|Store|Sum|Switch|Take|Translate|Turn|"
    r"Unregister|Update|Use|Verify|Visit|Wait|Warn|Watch|Wrap|Write|Yield"
    r")\b"
)
# Functions make these, not users.
MADE_BY_FUNCTIONS = {"tensortrial.read.runs.Runs", "tensortrial.read.tensor.Tensor", "tensortrial.read.trial.Trial"}

# A framework calls these methods of hooks, with arguments that its own documentation describes.
CALLED_BY_A_FRAMEWORK = re.compile(
    r"^tensortrial\.hooks\..*\.((on|before|after)_\w+|begin|end|set_model|set_params|init|update_\w+)$"
)


@cache
def public_objects() -> dict[str, griffe.Object]:
    """Return every public class, function, method and property by the path of its definition."""
    found = {}
    for member in list_public_names(load_package(Path(tensortrial.__file__).parents[1])).values():
        found[member.path] = member
        if member.is_class:
            found.update({inner.path: inner for inner in _public_members(member)})
    return found


def _public_members(owner: griffe.Class) -> Iterator[griffe.Object]:
    if _is_builtin_rule(owner):
        return  # its parameters are a table, and users call what every Rule has
    for name, member in owner.all_members.items():
        if not name.startswith("_") and name not in INTERNAL_METHODS:
            target = member.final_target if member.is_alias else member
            if (target.is_function or "property" in target.labels) and not CALLED_BY_A_FRAMEWORK.match(target.path):
                yield target


def find_gaps(member: griffe.Object) -> list[str]:
    """Return what the docstring of `member` lacks, as sentences."""
    docstring = _docstring(member)
    if docstring is None:
        return [] if member.is_attribute and "property" not in member.labels else ["has no docstring"]
    if member.is_function:
        return [*_wrong_start(docstring), *_missing_arguments(member), *_missing_results(member, docstring)]
    return _missing_arguments(member) if member.is_class and _is_made_by_users(member) else []


def _is_made_by_users(member: griffe.Class) -> bool:
    return not (_is_error(member) or _is_builtin_rule(member) or member.path in MADE_BY_FUNCTIONS)


def _is_builtin_rule(member: griffe.Class) -> bool:
    return any(base.name == "BuiltinRule" for base in member.mro())


def _docstring(member: griffe.Object) -> griffe.Docstring | None:
    """Return the docstring, or that of the method which `member` overrides."""
    if member.docstring:
        return member.docstring
    bases = member.parent.mro() if member.parent and member.parent.is_class else []
    overridden = (base.members[member.name] for base in bases if member.name in base.members)
    return next((method.docstring for method in overridden if method.docstring), None)


def _wrong_start(docstring: griffe.Docstring) -> list[str]:
    first = docstring.value.split()[0]
    return [] if VERB.match(first) else [f"begins with {first!r}, not with a verb"]


def _missing_arguments(member: griffe.Object) -> list[str]:
    constructor = member.all_members.get("__init__") if member.is_class else member
    if constructor is None:
        return []
    documented = {
        argument.name.lstrip("*") for text in _texts(member) for argument in _section(text, "parameters", "attributes")
    }
    if member.is_class:
        documented |= {name for name, field in member.attributes.items() if field.docstring}
    parameters = {one.name.lstrip("*"): None for one in constructor.parameters}
    missing = [name for name in parameters if name not in {*documented, "self", "cls", "args", "kwargs"}]
    return [f"Args lacks {', '.join(missing)}"] if missing else []


def _texts(member: griffe.Object) -> list[griffe.Docstring]:
    """Return the docstrings that may describe an argument: for a class also those of its bases and constructors."""
    if not member.is_class:
        docstring = _docstring(member)
        return [docstring] if docstring else []
    classes = [member, *member.mro()]
    constructors = [one.members["__init__"] for one in classes if "__init__" in one.members]
    return [one.docstring for one in [*classes, *constructors] if one.docstring]


def _missing_results(member: griffe.Function, docstring: griffe.Docstring) -> list[str]:
    gaps = []
    returns = str(member.returns or "None")
    if returns not in ("None", "NoReturn", "Self") and not _section(docstring, "returns", "yields"):
        gaps.append("has no Returns")
    documented = {str(error.annotation) for error in _section(docstring, "raises")}
    missing = sorted(_raised_errors(member) - documented)
    return [*gaps, f"Raises lacks {', '.join(missing)}"] if missing else gaps


def _section(docstring: griffe.Docstring, *kinds: str) -> list[griffe.DocstringElement]:
    return [element for part in docstring.parsed if part.kind.value in kinds for element in part.value]


def _is_error(member: griffe.Class) -> bool:
    return member.path.startswith("tensortrial.errors.")


@cache
def _error_names() -> frozenset[str]:
    names = public_objects()
    return frozenset(path.rpartition(".")[2] for path, member in names.items() if member.is_class and _is_error(member))


def _raised_errors(member: griffe.Function) -> set[str]:
    """Return the errors of this project that the body of `member` raises itself."""
    tree = ast.parse(_dedented(member))
    raised = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    called = (one.func if isinstance(one, ast.Call) else one for one in raised)
    return {one.id for one in called if isinstance(one, ast.Name)} & _error_names()


def _dedented(member: griffe.Function) -> str:
    lines = Path(member.filepath).read_text().splitlines()[member.lineno - 1 : member.endlineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if line[:indent].isspace() or not indent else line for line in lines)


def test_every_public_name_is_documented() -> None:
    gaps = {path: find_gaps(member) for path, member in public_objects().items()}
    wrong = [f"{path}: {'; '.join(found)}" for path, found in gaps.items() if found]
    assert not wrong, "\n".join(wrong)


def test_every_public_name_has_a_section_in_the_reference() -> None:
    assert list_undocumented_names(load_package(Path(tensortrial.__file__).parents[1])) == []


def test_a_docstring_without_arguments_results_and_errors_is_reported(tmp_path: Path) -> None:
    code = 'def twice(value: int) -> int:\n    """Twice the value."""\n    raise RunNotFound("x", "y")\n'
    module = griffe.visit("module", tmp_path / "module.py", code, docstring_parser="google")
    (tmp_path / "module.py").write_text(code)
    assert find_gaps(module["twice"]) == [
        "begins with 'Twice', not with a verb",
        "Args lacks value",
        "has no Returns",
        "Raises lacks RunNotFound",
    ]
