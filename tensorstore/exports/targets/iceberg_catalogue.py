"""Iceberg catalogues: in a file, in a database, or in pyiceberg's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigurationError, ExportError, MissingExtra, importing
from .. import urls
from ..target import shown

with importing("pyiceberg", "warehouse", "an export into Iceberg"):
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import NotInstalledError
    from pyiceberg.utils.config import Config
    from sqlalchemy.engine import make_url

_NAME = "tensortrial"
"""The name of this project's catalogue in a database, which may hold several."""

# SQLAlchemy's default drivers differ by version; this one is in the extra.
_POSTGRESQL = dict.fromkeys(("postgres", "postgresql"), "postgresql+psycopg2")
_SQLITE = "sqlite"
_EXAMPLE = "iceberg:sqlite:///lake/catalogue.db"
_OF_DATABASES = {"botocore_session", "echo", "init_catalog_tables", "pool_pre_ping", "schema_version"}
"""pyiceberg's options of a catalogue in a database. Its other options, such as s3.endpoint, have a dot or a dash."""
_SECRET_WORDS = ("credential", "key", "password", "secret", "token")


def open_catalogue(address: str, warehouse: str, properties: Mapping[str, Any]) -> Catalog:
    """Open a catalogue by a URL of SQLAlchemy, or by a name in pyiceberg's configuration.

    New tables are in the folder `warehouse`. Raises ExportError for an unknown name, ConfigurationError for an unknown
    option. Errors of pyiceberg and SQLAlchemy pass.
    """
    if "://" in address:
        return _in_database(address, warehouse, properties)
    settings = {**properties, **({"warehouse": warehouse} if warehouse else {})}
    name = address.strip("/") or Config().get_default_catalog_name()
    if not {"type", "uri"} & set(settings) and Config().get_catalog_config(name) is None:
        reason = f"pyiceberg's configuration has no catalogue {name!r}; {_EXAMPLE} creates one in a file"
        raise ExportError(f"iceberg:{address}", reason)
    return load_catalog(name, **settings)


def secrets(address: str, properties: Mapping[str, Any]) -> list[str]:
    """Return the secrets in the arguments of `open_catalogue`. Raises ExportError if they cannot be found."""
    has_server = "://" in address and not address.startswith(_SQLITE)
    of_url = urls.secrets(urls.split(address, f"iceberg:{shown(address)}")) if has_server else []
    return of_url + [str(value) for key, value in properties.items() if value and _is_secret(key)]


def _in_database(url: str, warehouse: str, properties: Mapping[str, Any]) -> Catalog:
    if wrong := {each for each in properties if each.isidentifier()} - _OF_DATABASES:
        raise ConfigurationError(f"iceberg: has no option {min(wrong)!r}; it has namespace, warehouse and pyiceberg's")
    scheme, _, rest = url.partition("://")
    scheme = _POSTGRESQL.get(scheme, scheme)
    if scheme == _SQLITE:
        folder = _file(f"{scheme}://{rest}").parent
        folder.mkdir(parents=True, exist_ok=True)
        # pyiceberg does not decode a percent-encoded path.
        warehouse = warehouse or (str(folder) if "%" in folder.as_uri() else folder.as_uri())
    elif not warehouse:
        raise ExportError(
            f"iceberg:{shown(url)}",
            "it does not say where the files of new tables go: pass warehouse='s3://bucket/folder'",
        )
    try:
        settings = {**properties, "type": "sql", "uri": f"{scheme}://{rest}", "warehouse": warehouse}
        return load_catalog(_NAME, **settings)
    except NotInstalledError as exc:
        if scheme in _POSTGRESQL.values():
            raise MissingExtra("psycopg2", "warehouse", "a catalogue of Iceberg in PostgreSQL") from exc
        raise ExportError(f"iceberg:{shown(url)}", f"the driver of {scheme} is not installed: see SQLAlchemy") from exc


def _file(url: str) -> Path:
    """Return the file of a catalogue in SQLite: its path after three slashes, with a fourth if it is absolute."""
    path = make_url(url).database or ""
    if not url.startswith(f"{_SQLITE}:///") or path in ("", ":memory:"):
        raise ExportError(f"iceberg:{url}", f"names no file; write {_EXAMPLE}")
    return Path(path).absolute()


def _is_secret(option: str) -> bool:
    return any(word in option for word in _SECRET_WORDS)
