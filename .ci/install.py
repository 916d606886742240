"""Install packages into an environment.

uv does it in a tenth of the time that pip takes. Where uv could not be installed, pip does it:

python .ci/install.py .venv/bin/python --constraint constraints/main.txt REQUIREMENT...
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

# `make` makes this environment, which has pip and, if it can be had, uv.
TOOLS = Path(__file__).resolve().parents[1] / "build" / "uv" / "bin"

# uv does not read the configuration of pip. It has a variable for each setting, and a separator of several values.
VARIABLES = {
    "cert": ("SSL_CERT_FILE", " "),
    "constraint": ("UV_CONSTRAINT", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}


def main(python: str, *arguments: str) -> int:
    """Install by the options and requirements of pip, and return the exit status."""
    if not (TOOLS / "uv").exists():
        return subprocess.call([TOOLS / "python", "-m", "pip", "--python", python, "install", "--quiet", *arguments])
    # As pip does, take the newest version of all places, not of the first that has the package.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", **settings(), **os.environ}
    return subprocess.call([TOOLS / "uv", "pip", "install", "--quiet", "--python", python, *arguments], env=variables)


def settings() -> dict[str, str]:
    """Return the variables of uv that say what pip's configuration says."""
    listed = subprocess.run(
        [TOOLS / "python", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = {}
    # Sorted, what holds for `pip install` comes after what holds for all commands. A variable wins over both.
    for line in sorted(listed.stdout.splitlines(), key=lambda line: (line.startswith(":env:"), line)):
        name, _, value = line.partition("=")
        section, _, setting = name.rpartition(".")
        if section in ("global", "install", ":env:") and setting in VARIABLES:
            variable, separator = VARIABLES[setting]
            found[variable] = separator.join(ast.literal_eval(value).split())
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
