"""The objects that a URL or a storage of the caller's names.

obstore reads ``s3://``, ``gs://``, ``az://`` and their like, fsspec every other scheme.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from mqstore.errors import ConfigError, UnsupportedError, needs
from mqstore.files.remote import _first_part, _FsspecObjects, _Objects, _ObstoreObjects
from mqstore.files.request_threads import request_threads
from mqstore.store import _shown

__all__ = ["objects_of"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_OBSTORE = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "read_timeout",
    "timeout",
    "user_agent",
)
_SECRET = re.compile("key|token|secret|pass|sas|credential|signature|account", re.IGNORECASE)
_SECRETS_OF_ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")


def objects_of(
    path: str | os.PathLike[str], storage: object, storage_options: Mapping[str, Any] | None
) -> tuple[str, _Objects]:
    """Returns the URL of a store's root, and its objects.

    Args:
        path: A URL, or with `storage` a prefix.
        storage: An obstore store, or an fsspec file system.
        storage_options: Options of the object store, for a URL.

    Raises:
        ConfigError: An option that the object store does not know.
        UnsupportedError: A scheme that cannot be listed or is not known.
        MissingPackageError: Neither obstore nor fsspec is installed.
    """
    options = dict(storage_options or {})
    secrets = [*_secrets(options), *filter(None, map(os.environ.get, _SECRETS_OF_ENVIRONMENT))]
    request_threads()
    if storage is not None:
        return _given(os.fspath(path), storage, secrets)
    url = str(path)
    scheme, rest = _URL.fullmatch(url).groups()  # type: ignore[union-attr]
    scheme = scheme.lower()
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (":" in user or scheme not in ("abfs", "abfss")):
        shown = f"{scheme}://{rest.rpartition('@')[2]}"
        raise ValueError(
            f"path: expected a URL without credentials, got some for {shown}: "
            "give them as storage_options"
        )
    if scheme in ("http", "https"):
        what = (
            "a web server cannot list a store's files; nothing was read: give the URL of the "
            "bucket (s3://, gs://, az://), or copy the store to a local folder"
        )
        raise UnsupportedError(f"{_shown(url)}: {what}", what, _shown(url))
    make = _by_obstore if scheme in _OBSTORE else _by_fsspec
    try:
        with needs("cloud", "a store behind a URL"):
            return make(url, scheme, rest, options, secrets)
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, (UnsupportedError, ConfigError)):
            raise
        text = _Objects(url, "", secrets)._clean(f"storage_options: {error}")  # noqa: SLF001
    raise ConfigError(text, "storage_options")


def _secrets(options: Mapping[str, Any], is_inside: bool = False) -> list[str]:  # noqa: FBT001, FBT002
    """The values that no text may show."""
    found: list[str] = []
    for name, value in options.items():
        is_secret = is_inside or _SECRET.search(str(name)) is not None
        if isinstance(value, Mapping):
            found += _secrets(value, is_secret)
        elif is_secret and isinstance(value, (str, bytes)):
            found.append(value if isinstance(value, str) else value.decode("latin-1"))
    return found


def _by_obstore(
    url: str, scheme: str, rest: str, options: dict[str, Any], secrets: list[str]
) -> tuple[str, _Objects]:
    from obstore import exceptions
    from obstore.store import from_url

    client = dict(options.pop("client_options", {}))
    client |= {name: options.pop(name) for name in _CLIENT_OPTIONS if name in options}
    client.setdefault("connect_timeout", "5 seconds")
    for name in ("allow_http", "allow_invalid_certificates", "http1_only", "http2_only"):
        if isinstance(client.get(name), str):
            client[name] = client[name].lower() in ("1", "true", "yes")
    # Requests are repeated here, where an exit ends it.
    retry = options.pop("retry_config", {"max_retries": 0})
    bucket, _, prefix = rest.partition("/")
    try:
        store = from_url(  # type: ignore[call-overload]
            f"{scheme}://{bucket}", config=options, client_options=client, retry_config=retry
        )
    except exceptions.BaseError as error:
        raise ValueError(_first_part(error)) from None
    prefix = prefix.strip("/")
    return url.rstrip("/"), _ObstoreObjects(store, url.rstrip("/"), prefix, secrets)


def _by_fsspec(
    url: str, scheme: str, _rest: str, options: dict[str, Any], secrets: list[str]
) -> tuple[str, _Objects]:
    import fsspec

    if scheme not in fsspec.available_protocols():
        what = (
            f"no package reads {scheme}://; nothing was read: expected "
            f"{', '.join(_OBSTORE)} or a scheme of fsspec"
        )
        raise UnsupportedError(f"{_shown(url)}: {what}", what, _shown(url))
    try:
        system, root = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        what = f"{scheme}:// is read by a package of fsspec that is not installed: {error}"
        raise UnsupportedError(f"{_shown(url)}: {what}", what, _shown(url)) from None
    return url.rstrip("/"), _FsspecObjects(system, url.rstrip("/"), root, secrets)


def _given(prefix: str, storage: object, secrets: list[str]) -> tuple[str, _Objects]:
    """A prefix of an object of the caller."""
    if "://" in prefix:
        raise ValueError(f"path: expected a prefix beside storage, got the URL {_shown(prefix)}")
    name = prefix.strip("/")
    if type(storage).__module__.partition(".")[0] in (
        "obstore",
        "_obstore",
        "builtins",
    ) and hasattr(storage, "list_with_delimiter"):
        config: Mapping[str, Any] = getattr(storage, "config", None) or {}
        bucket = config.get("bucket") or config.get("container_name") or ""
        kind = type(storage).__name__.lower().removesuffix("store")
        url = f"{kind}://{bucket}/{name}".rstrip("/")
        secrets += _secrets(dict(config))
        return url, _ObstoreObjects(storage, url, name, secrets)
    if hasattr(storage, "cat_file") and hasattr(storage, "find"):
        protocol = storage.protocol  # type: ignore[attr-defined]
        scheme = protocol if isinstance(protocol, str) else protocol[0]
        url = f"{scheme}://{prefix.rstrip('/')}"
        root = storage._strip_protocol(prefix)  # type: ignore[attr-defined]  # noqa: SLF001
        secrets += _secrets(dict(getattr(storage, "storage_options", {})))
        return url, _FsspecObjects(storage, url, root, secrets)
    found = type(storage).__name__
    raise TypeError(f"storage: expected an obstore store or an fsspec file system, got {found}")
