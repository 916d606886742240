"""Iceberg's catalogues: in a file, in a database, or one of pyiceberg's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ExportError, MissingExtra
from . import urls
from .target import shown

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import NotInstalledError
    from pyiceberg.utils.config import Config
except ModuleNotFoundError as exc:
    raise MissingExtra("pyiceberg", "warehouse", "an export into Iceberg") from exc

_NAME = "tensortrial"
"""Of a catalogue in a database, which may hold several."""

# SQLAlchemy's own choices differ from version to version; this driver is in the extra.
_POSTGRESQL = dict.fromkeys(("postgres", "postgresql"), "postgresql+psycopg2")
_SQLITE = "sqlite"
_EXAMPLE = "iceberg:sqlite:///lake/catalogue.db"
_SECRET_WORDS = ("credential", "key", "password", "secret", "token")


def open_catalogue(place: str, warehouse: str, properties: Mapping[str, Any]) -> Catalog:
    """The catalogue at a URL of SQLAlchemy, or that of a name; tables that it makes are below the folder `warehouse`.

    Raises ExportError for one that there is not, and what pyiceberg and SQLAlchemy raise.
    """
    if "://" in place:
        return _in_database(place, warehouse, properties)
    given = {**properties, **({"warehouse": warehouse} if warehouse else {})}
    name = place.strip("/") or Config().get_default_catalog_name()
    if not {"type", "uri"} & set(given) and Config().get_catalog_config(name) is None:
        reason = f"pyiceberg's configuration has no catalogue {name!r}; {_EXAMPLE} makes one in a file"
        raise ExportError(f"iceberg:{place}", reason)
    return load_catalog(name, **given)


def secrets(place: str, properties: Mapping[str, Any]) -> list[str]:
    """What no message may tell of what `open_catalogue` takes. Raises ExportError where there is no telling."""
    has_server = "://" in place and not place.startswith(_SQLITE)
    of_url = urls.secrets(urls.split(place, f"iceberg:{shown(place)}")) if has_server else []
    return of_url + [str(value) for key, value in properties.items() if value and _is_secret(key)]


def _in_database(url: str, warehouse: str, properties: Mapping[str, Any]) -> Catalog:
    scheme, _, rest = url.partition("://")
    scheme = _POSTGRESQL.get(scheme, scheme)
    if scheme == _SQLITE:
        folder = _file(rest).parent
        folder.mkdir(parents=True, exist_ok=True)
        warehouse = warehouse or folder.as_uri()
    elif not warehouse:
        raise ExportError(
            f"iceberg:{shown(url)}", "say where the files of new tables go: warehouse='s3://bucket/folder'"
        )
    try:
        given = {**properties, "type": "sql", "uri": f"{scheme}://{rest}", "warehouse": warehouse}
        return load_catalog(_NAME, **given)
    except NotInstalledError as exc:
        if scheme in _POSTGRESQL.values():
            raise MissingExtra("psycopg2", "warehouse", "a catalogue of Iceberg in PostgreSQL") from exc
        raise ExportError(f"iceberg:{shown(url)}", f"the driver of {scheme} is not installed: see SQLAlchemy") from exc


def _file(rest: str) -> Path:
    """Of a catalogue in SQLite: after three slashes its path, which begins with a fourth if it is absolute."""
    path = rest.partition("?")[0].removeprefix("/")
    if not rest.startswith("/") or path in ("", ":memory:"):
        raise ExportError(f"iceberg:{_SQLITE}://{rest}", f"names no file; write {_EXAMPLE}")
    return Path(path).absolute()


def _is_secret(option: str) -> bool:
    return any(word in option for word in _SECRET_WORDS)
