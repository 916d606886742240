"""The redaction of texts: of credentials in messages, and of likely secrets in command lines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from functools import partial
from typing import Any

HIDDEN = "***"
"""The replacement of a secret."""

_LONGEST_ARGUMENT = 1000
_LONGEST_STRUCTURE = 100_000

# Of URLs.
_URL = re.compile(r"(?<=://)[^\s'\"]+")
# Credentials of a database without a scheme, such as user:password@host.
_USER = re.compile(r"(?<![\w/.:-])[\w.%+-]{1,64}:[^\s/@\\'\"]{1,256}@(?=[\w\[])")
_UNENCODED_USER = re.compile(r"[^/@]*:(?!\d+(?:/|$)).*@", re.DOTALL)
_VALUE_OF_QUERY = re.compile(r"(?<=[?&;])([^=&?;]+)=[^&]*")

# Of command lines.
_SECRET_NAME = re.compile(
    r"token(?!i[sz])|secret|passw|passphrase|passcode|pwd|(?:api|access|private)[-_]?key|credential|auth(?!or(?!iz))|cookie"
    r"|signature|bearer|(?:^|[-_.])(?:key|sas|sig|pass|pw|dsn)$",
    re.IGNORECASE,
)
_SECRET_KEY = re.compile(r"[a-z]Key$")
"""A name as in AccountKey or sharedAccessKey."""
_COUNTED = re.compile(r"token|key", re.IGNORECASE)
"""Names whose number is not a secret: max_tokens=512."""
_OPTIONS_OF_USERS = frozenset({"-u", "-U", "--user", "--userpwd", "--proxy-user"})
_USER_INSIDE = re.compile(r"((?<![\w-])-[uU] ?|--(?:proxy-)?user(?:pwd)?[ =])[\w.@%+-]+:[^\s'\"]+")
"""The same within one text: `-ume:password`, or the command of a shell."""
_NAME = re.compile(r"""(?P<name>[\w.-]{1,100})['"]?\s*(?P<sign>[=:])\s*""")
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_VALUES = {
    "=": re.compile(rf"""{_QUOTED}|[^\s,;&'"}}\])]+""", re.DOTALL),
    ":": re.compile(rf"""{_QUOTED}|[^,'"}}\])\n]+""", re.DOTALL),
}
"""The patterns of values by the character before. A header's value may have blanks: `Authorization: Basic …`."""
_BEARER = re.compile(r"\b(bearer)\s+[^\s'\",;}]+", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL)
# The forms of tokens that vendors document, and that scanners of repositories search for. Compiled on first use.
_TOKEN = r"""(?x)(?<![\w-])(?:
    (?:hf_|api_org_)[\w.-]{8,}                                      # Hugging Face
    | (?:gh[oprsu]_|github_pat_)[\w.-]{8,}                          # GitHub
    | gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas)-[\w.-]{8,}          # GitLab
    | sk-[\w.-]{8,}                                                 # OpenAI, Anthropic, OpenRouter, DeepSeek
    | (?:[sr]k|pk)_(?:live|test)_\w{8,} | whsec_[\w+/=]{8,}         # Stripe
    | xox[abeprs]-[\w.-]{8,} | xapp-[\w-]{8,}                       # Slack
    | (?:AKIA|ASIA|ABIA|ACCA)[\w.-]{8,}                             # Amazon
    | AIza[\w-]{20,} | ya29\.[\w.-]{8,} | GOCSPX-[\w-]{8,}          # Google
    | npm_\w{8,} | pypi-[\w-]{8,} | dckr_(?:pat|oat)_[\w-]{8,}      # npm, PyPI, Docker
    | nvapi-[\w-]{8,} | r8_\w{8,}                                   # NVIDIA, Replicate
    | wandb_v1_\w{8,} | dapi[0-9a-f]{16,}                           # Weights & Biases, Databricks
    | gsk_\w{8,} | xai-\w{8,} | pplx-\w{8,} | tgp_v1_[\w-]{8,}      # Groq, xAI, Perplexity, Together
    | do[opr]_v1_\w{8,} | hv[bsr]\.[\w-]{8,} | SG\.[\w.-]{16,}      # DigitalOcean, Vault, SendGrid
    | shp(?:at|ca|pa|ss)_\w{8,} | lin_api_\w{8,} | ntn_\w{8,}       # Shopify, Linear, Notion
    | ATATT3x[\w=.-]{8,} | LTAI\w{8,} | AGE-SECRET-KEY-\w{8,}       # Atlassian, Alibaba, age
    | \d{8,10}:[\w-]{35}(?![\w-])                                   # Telegram
    | eyJ[\w.-]{8,}                                                 # JSON Web Token
    )"""
_SECRET_PATH = re.compile(r"(?<=hooks\.slack\.com/)[^\s'\"]+|(?<=/api/webhooks/)[^\s'\"]+")


def without_credentials(text: str) -> str:
    """Return a text with `***` in place of credentials in URLs: user and password, and values of a query."""
    if "://" in text:
        text = _URL.sub(lambda url: _clean(url[0]), text)
    return _USER.sub(f"{HIDDEN}@", text) if "@" in text else text


def _clean(url: str) -> str:
    """Return the rest of a URL after the scheme, without credentials."""
    server, slash, path = url.partition("/")
    if "@" in server:
        url = f"{HIDDEN}@{server.rpartition('@')[2]}{slash}{path}"
    elif _UNENCODED_USER.match(url):  # a password may contain any character, so only its end is known
        url = f"{HIDDEN}@{url.rpartition('@')[2]}"
    address, mark, query = url.partition("?")
    return address + _VALUE_OF_QUERY.sub(rf"\1={HIDDEN}", mark + query)


def without_secrets(arguments: Iterable[str]) -> list[str]:
    """Return a command line with `***` in place of likely secrets."""
    found, option = [], ""
    for argument in arguments:
        name, is_pair, value = argument.partition("=")
        hides = bool(_SECRET_NAME.search(option)) or (option in _OPTIONS_OF_USERS and ":" in argument)
        if hides and not argument.startswith("-"):
            shown = HIDDEN
        elif is_pair and re.fullmatch(r"[\w.-]+", name) and _is_secret(name, value):
            shown = f"{name}={HIDDEN}"
        else:
            shown = _text_without_secrets(argument)
        option = argument if argument.startswith("-") and not is_pair else ""
        found.append(shown if len(shown) <= _LONGEST_ARGUMENT else f"{shown[:_LONGEST_ARGUMENT]}…")
    return found


def _text_without_secrets(text: str) -> str:
    name, is_pair, value = text.partition("=")
    for before, part in (("", text), (f"{name}=", value)) if is_pair else (("", text),):
        kept = _structure(part)
        if kept is not None:
            return before + kept
    return _pairs_without_secrets(without_credentials(_forms_without_secrets(text[: 2 * _LONGEST_ARGUMENT])))


def _forms_without_secrets(text: str) -> str:
    for pattern in (_PRIVATE_KEY, _TOKEN, _SECRET_PATH):
        text = re.sub(pattern, HIDDEN, text)
    return _USER_INSIDE.sub(rf"\1{HIDDEN}", _BEARER.sub(rf"\1 {HIDDEN}", text))


def _pairs_without_secrets(text: str) -> str:
    parts, at = [], 0
    for found in _NAME.finditer(text):
        value = _VALUES[found["sign"]].match(text, found.end())
        if found.start() >= at and value and _is_secret(found["name"], value[0].strip("'\"")):
            parts += [text[at : found.end()], HIDDEN]
            at = value.end()
    return "".join([*parts, text[at:]])


def _structure(text: str) -> str | None:
    """Return a dictionary or list, of JSON or of Python, without secrets; None if the text is neither."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > _LONGEST_STRUCTURE:
        return None
    for read, write in ((json.loads, partial(json.dumps, ensure_ascii=False)), (ast.literal_eval, repr)):
        try:
            found = read(text.strip())
            kept = _kept(found)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return text if kept == found else str(write(kept))
    return None


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if _hides(key, each) else _kept(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        # A list may be a command line, or a list of pairs.
        texts = iter(without_secrets([each for each in value if isinstance(each, str)]))
        return type(value)(next(texts) if isinstance(each, str) else _kept(each) for each in value)
    return _text_without_secrets(value) if isinstance(value, str) else value


def _hides(key: object, value: object) -> bool:
    return isinstance(key, str) and value is not None and not isinstance(value, bool) and _is_secret(key, str(value))


def _is_secret(name: str, value: str) -> bool:
    named = _SECRET_NAME.search(name) or _SECRET_KEY.search(name)
    is_number = value.replace(".", "", 1).isdecimal()
    return bool(named) and not (is_number and _COUNTED.search(name))
