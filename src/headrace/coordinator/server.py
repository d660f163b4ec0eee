"""The coordinator's Flight server: JSON actions, each with the application's secret."""

from __future__ import annotations

from typing import Any

from pyarrow import flight

from headrace.coordinator.core import Coordinator
from headrace.host.secret import SecretRequired
from headrace.host.wire import answer, errors_cross, request_of


class CoordinatorServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from the moment it is made until `shutdown`."""

    def __init__(self, coordinator: Coordinator, bind: str, secret: str) -> None:
        super().__init__(f"grpc+tcp://{bind}:0", middleware={"secret": SecretRequired(secret)})
        self._coordinator = coordinator

    def do_action(self, context: Any, action: Any) -> list[flight.Result]:
        with errors_cross():
            return [answer(self._coordinator.act(action.type, request_of(action)))]
