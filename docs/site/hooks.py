"""MkDocs calls these functions while it builds the site (see mkdocs.yml).

They add the pages that are generated (the command line, the SQL views, the documents at the root of the repository),
and stop the build when a public name has no section in the API reference.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Documents at the root that the site shows too.
ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

_VIEWS = """# SQL views

What `sql` of a [trial][tensortrial.Trial.sql], of [many runs][tensortrial.Runs.sql] and of the [command line](cli.md)
can read. The column `run` and the view `runs` exist where runs were opened together.
[SQL](../sql.md) explains the views by examples.
"""


def on_config(config: Any) -> Any:
    """Leave methods that users do not call out of the reference."""
    sys.path.insert(0, str(ROOT / "tests"))  # not above: MkDocs restores the path after it has imported this file
    from support.public_names import INTERNAL_METHODS

    options = config["plugins"]["mkdocstrings"].config["handlers"]["python"]["options"]
    options["filters"] = ["!^_", f"!^({'|'.join(INTERNAL_METHODS)})$"]
    return config


def on_pre_build(config: Any) -> None:
    """Stop the build if a public name has no section in the reference."""
    import tensortrial
    from support.public_names import list_undocumented_names, load_package

    missing = list_undocumented_names(load_package(Path(tensortrial.__file__).parents[1]))
    if missing:
        raise PluginError(f"no page below docs/reference has a section `::: NAME` for {', '.join(missing)}")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    pages = {path: (ROOT / source).read_text(encoding="utf-8") for source, path in ROOT_PAGES.items()}
    pages |= {"reference/cli.md": describe_commands(), "reference/views.md": describe_views()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapt the links of documents at the root, show links out of `docs/` as text, and insert the tree of errors."""
    if page.file.src_uri in ROOT_PAGES.values():
        markdown = markdown.replace("](docs/", "](")
    for source, path in ROOT_PAGES.items():
        markdown = re.sub(rf"\]\((\.\./)?{source}", f"]({path}", markdown)
    if page.file.src_uri == "reference/errors.md":
        markdown = markdown.replace("{{ error tree }}", f"```text\n{_error_tree()}\n```")
        options = "{ heading_level: 3, show_signature: false, inherited_members: false }"
        markdown = re.sub(r"^(::: .*)", rf"\1\n    options: {options}\n", markdown, flags=re.MULTILINE)
    if not page.file.src_uri.startswith(("design/", "reference/")):
        markdown = re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)
    return markdown


def describe_commands() -> str:
    """Return the page of the command line, made from the commands themselves."""
    import click

    from tensortrial.cli.commands import main

    parts = ["# Command line\n", "The extra `ui` installs it: `pip install 'tensortrial[ui]'`.\n"]
    context = click.Context(main, info_name="tensortrial", terminal_width=90, max_content_width=90)
    parts.append(f"```text\n{main.get_help(context)}\n```\n")
    parts += _describe_group(main, context, level=2)
    return "\n".join(parts)


def _describe_group(group: Any, context: Any, level: int) -> list[str]:
    parts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = type(context)(command, info_name=name, parent=context, terminal_width=90, max_content_width=90)
        parts.append(f"{'#' * level} {inner.command_path}\n\n```text\n{command.get_help(inner)}\n```\n")
        if hasattr(command, "list_commands"):
            parts += _describe_group(command, inner, level + 1)
    return parts


def describe_views() -> str:
    """Return the page of the SQL views, made from the files that define them and from a run in the tests."""
    import tensortrial

    (run,) = (ROOT / "tests" / "golden" / "format-1").glob("none")
    runs = tensortrial.open_runs(str(run))
    parts = [_VIEWS]
    for view in sorted(view for (view,) in runs.sql("show tables").fetchall()):
        lines = (ROOT / "queries" / "views" / f"{view}.sql").read_text(encoding="utf-8").splitlines()
        comment = " ".join(line.removeprefix("--").strip() for line in lines if line.startswith("--"))
        meaning, _, columns = comment.partition("Columns:")
        answer = runs.sql(f"select * from {view} limit 0").to_arrow_table()
        rows = [f"| `{field.name}` | {field.type} |" for field in answer.schema]
        sentence = meaning.partition(":")[2].strip()
        parts.append(f"## {view}\n\n{sentence[:1].upper()}{sentence[1:]}\n\nColumns: {columns.strip()}\n")
        parts.append("\n".join(["| column | Arrow type |", "|---|---|", *rows, ""]))
    runs.close()
    return "\n".join(parts)


def _error_tree() -> str:
    from tensortrial import errors

    lines = (errors.__doc__ or "").splitlines()
    tree = (line for line in lines if line.startswith(("TensorTrialError", "├", "│", "└")))
    # The columns of the docstring are too wide for the page.
    return "\n".join(re.sub(r"(?<=[\w)])  +", "  ", line) for line in tree)
