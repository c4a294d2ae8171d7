"""What the tests of the network share: everything on loopback, on ports that are free now."""

import socket

import pytest


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def port() -> int:
    return free_port()
