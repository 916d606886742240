"""The page inside a notebook: a frame, and inside it what is shown where the frame cannot be filled."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from ..errors import MissingExtra, TensorTrialError
from ..html_table import html_table
from ..plots.picture import picture_of
from ..read.trial import Trial


def notebook_bundle(url: str, trials: Sequence[Trial]) -> dict[str, str]:
    """Return what a notebook shows of a page, by MIME type.

    A browser shows what is inside an `object` if its address cannot be reached: in a notebook that was converted or is
    read without its kernel, and where the kernel runs on another computer. So the frame needs no script, which a
    notebook may not run.

    Args:
        url: The address of the page.
        trials: Its runs.

    Returns:
        `text/html`, and `image/png` in base64 if there is one run and matplotlib is installed.
    """
    picture = _picture(trials)
    link = f'<a href="{escape(url)}" target="_blank" rel="noopener">{escape(url)}</a>'
    inner = f"<p>The page can be opened as long as this process runs, on its computer: {link}</p>"
    if picture is None:
        inner += "".join(_table(trial) for trial in trials) if len(trials) == 1 else _list(trials)
    else:
        alt = escape(f"the norms of tensors of {trials[0].name} over its steps")
        inner += f'<img src="data:image/png;base64,{picture}" alt="{alt}" style="max-width:100%">'
    frame = (
        f'<object type="text/html" data="{escape(url)}" title="tensortrial" '
        f'style="display:block;width:100%;height:720px;border:0">{inner}</object>'
    )
    return {"text/html": frame} | ({} if picture is None else {"image/png": picture})


def _picture(trials: Sequence[Trial]) -> str | None:
    """Return the picture of the only run in base64."""
    if len(trials) != 1:
        return None
    try:
        png = picture_of(trials[0])
    except (MissingExtra, TensorTrialError):
        return None
    return None if png is None else base64.b64encode(png).decode()


def _table(trial: Trial) -> str:
    return trial._repr_html_() or ""


def _list(trials: Sequence[Trial]) -> str:
    rows = ((trial.name, "ended" if trial.loaded_all_steps else "running") for trial in trials)
    return html_table(f"{len(trials)} runs", rows)
