"""The driver's calls to a state host: its status, and the request to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.coordinator.placing.machines import HostReport
from headrace.errors import HeadraceError
from headrace.host.process.locks import remove_socket
from headrace.plan.times import TIMES
from headrace.wire.calls import call, connect

_UNIX = "grpc+unix://"


def status_of(host: HostReport, secret: str) -> dict[str, Any]:
    """The host's status now; as in its newest heartbeat if it does not answer in time."""
    address = _address(host)
    if not address:
        return host.status
    try:
        return _called(address, secret, "status")
    except HeadraceError:
        return host.status


def stop_host(host: HostReport, secret: str) -> None:
    """Stops the host; removes the sockets of one that was killed."""
    address = _address(host)
    if not address:
        return
    try:
        _called(address, secret, "stop")
    except HeadraceError:
        if address.startswith(_UNIX):  # a killed host cannot remove its own sockets
            remove_socket(Path(address.removeprefix(_UNIX)))
            remove_socket(Path(host.addresses["door"]))


def _address(host: HostReport) -> str | None:
    unix = host.addresses.get("unix", "")
    is_local_socket = bool(unix) and Path(unix.removeprefix(_UNIX)).exists()
    return unix if is_local_socket else host.addresses.get("tcp")


def _called(address: str, secret: str, action: str) -> dict[str, Any]:
    client = connect(address)
    try:
        return call(client, secret, action, {}, timeout_s=TIMES.host_stop_s)
    finally:
        client.close()
