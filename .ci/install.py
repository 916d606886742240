"""Install packages into an environment.

uv does it in a tenth of the time that pip takes. Where uv could not be installed, pip does it:

python .ci/install.py .venv/bin/python --constraint constraints/main.txt REQUIREMENT...
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# `make` makes this environment, which has pip and, if it can be had, uv.
TOOLS = Path(__file__).resolve().parents[1] / "build" / "uv" / "bin"

# A file of a package index never changes. Where a mirror does not say so, uv would download an archive of sources each
# time, build it, and keep all that it built (2 GB of PySpark a time), unless its settings say it.
SETTINGS = """
[[index]]
url = "{index}"
default = true
cache-control = {{ files = "max-age=31536000, immutable" }}
"""

# uv does not read pip's configuration. Its options for what is said there:
OPTIONS = {
    "constraint": "--constraint",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}


def main(python: str, *arguments: str) -> int:
    """Install by the options and requirements of pip, and return the exit status."""
    if not (TOOLS / "uv").exists():
        return subprocess.call([TOOLS / "python", "-m", "pip", "--python", python, "install", "--quiet", *arguments])
    configured = configuration()
    options = [
        word for name, option in OPTIONS.items() for value in configured.get(name, ()) for word in (option, value)
    ]
    # As pip does, take the newest version of all places, not of the first that has the package.
    options += ["--quiet", "--index-strategy", "unsafe-best-match"]
    variables = {"SSL_CERT_FILE": configured["cert"][0]} if "cert" in configured else {}
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".toml") as settings:
        settings.write(SETTINGS.format(index=configured["index-url"][0]))
        settings.flush()
        command = [TOOLS / "uv", "--config-file", settings.name, "pip", "install", "--python", python]
        return subprocess.call([*command, *options, *arguments], env={**variables, **os.environ})


def configuration() -> dict[str, list[str]]:
    """Return the values of each setting of `pip install`."""
    default = printed("-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)")
    found = {"index-url": default.split()}
    listed = printed("-m", "pip", "config", "list")
    # In this order, a variable wins over what holds for `pip install`, and this over what holds for all commands.
    for section in ("global", "install", ":env:"):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                found[name.removeprefix(f"{section}.")] = ast.literal_eval(value).split()
    return found


def printed(*arguments: str) -> str:
    """Return what pip's Python prints."""
    return subprocess.run([TOOLS / "python", *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
