"""The page inside a notebook: a frame with a fallback for readers that cannot reach the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from ..errors import MissingExtra, TensorTrialError
from ..html_table import html_table
from ..plots.picture import picture_of
from ..read.trial import Trial


def notebook_bundle(url: str, only: Trial | None, rows: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the representations of a page in a notebook, by MIME type.

    A browser shows the content of an `object` element if its address cannot be reached: in a converted notebook, one
    without its kernel, or one whose kernel runs on another computer. So the frame needs no script, which a notebook may
    not run.

    These are `text/html`, and `image/png` in base64 for `only`, the page's run if there is only one, if matplotlib is
    installed. `rows` has the name and the state of each run.
    """
    picture = None if only is None else _picture(only)
    link = f'<a href="{escape(url)}" target="_blank" rel="noopener">{escape(url)}</a>'
    inner = f"<p>The page can be opened as long as this process runs, on its computer: {link}</p>"
    if picture is None:
        inner += html_table(f"{len(rows)} runs", rows) if only is None else only._repr_html_() or ""
    else:
        alt = escape(f"the norms of tensors of {rows[0][0]} over its steps")
        inner += f'<img src="data:image/png;base64,{picture}" alt="{alt}" style="max-width:100%">'
    frame = (
        f'<object type="text/html" data="{escape(url)}" title="tensortrial" '
        f'style="display:block;width:100%;height:720px;border:0">{inner}</object>'
    )
    return {"text/html": frame} | ({} if picture is None else {"image/png": picture})


def _picture(trial: Trial) -> str | None:
    """Return the picture of a run in base64."""
    try:
        png = picture_of(trial)
    except (MissingExtra, TensorTrialError):
        return None
    return None if png is None else base64.b64encode(png).decode()
