"""The object stores by the scheme of a location: the settings and words of each.

All are reached through the environment, as other programs of that cloud are. A store qualifies if a put of
an unused name is atomic, ranges can be read, and a list shows every finished put.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace.errors import SettingError

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True)
class Cloud:
    """One kind of object store."""

    scheme: str
    container: str  # its word for what `s3` calls a bucket
    variables: tuple[str, ...]  # of the environment, by which the client reaches it
    endpoint_variables: tuple[str, ...]  # the first one that is set counts
    allow_http: str  # the variable that permits plain http
    place: str  # which settings name the store, for hints
    credentials: str  # which settings give credentials, for hints
    together: str  # which settings must belong together, for hints
    account_variables: tuple[str, ...] = ()  # the name of an account, where containers are below one

    def endpoint(self, environment: Mapping[str, str]) -> str:
        """The endpoint that is set; empty for the cloud's own."""
        return _first(environment, self.endpoint_variables)

    def account(self, environment: Mapping[str, str]) -> str:
        return _first(environment, self.account_variables)

    def identity(self, environment: Mapping[str, str]) -> str:
        """What distinguishes two stores that have a container of the same name."""
        return " ".join(part for part in (self.endpoint(environment), self.account(environment)) if part)

    def check(self, environment: Mapping[str, str]) -> None:
        """Refuses settings with which no request could be made, or would be readable on its way."""
        endpoint = self.endpoint(environment)
        plain = environment.get(self.allow_http, "").lower() == "true"
        if endpoint.startswith("http:") and not (plain or urlsplit(endpoint).hostname in LOOPBACK):
            raise SettingError(
                f"{endpoint} would send state and credentials unencrypted",
                hint=f"use https, or set {self.allow_http}=true in the environment of the executors",
            )
        if self.account_variables and not self.account(environment):
            raise SettingError(
                f"{self.scheme}://… does not name its storage account",
                hint=f"set {self.account_variables[0]} in the environment of driver and executors "
                "(spark.executorEnv.…)",
            )


S3 = Cloud(
    "s3",
    "bucket",
    (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ),
    ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "AWS_ALLOW_HTTP",
    "AWS_ENDPOINT_URL and AWS_REGION",
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN and AWS_REGION",
)
AZURE = Cloud(
    "az",
    "container",
    (
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_TENANT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_AUTHORITY_HOST",
    ),
    ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "AZURE_ALLOW_HTTP",
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID with AZURE_CLIENT_SECRET and "
    "AZURE_TENANT_ID",
    "AZURE_STORAGE_ACCOUNT_NAME and its key or token",
    ("AZURE_STORAGE_ACCOUNT_NAME",),
)
_CLOUDS = {cloud.scheme: cloud for cloud in (S3, AZURE)}


def cloud_of(location: str) -> Cloud | None:
    """The cloud of a location; None for a directory."""
    scheme, separator, _ = location.partition("://")
    return _CLOUDS.get(scheme) if separator else None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
