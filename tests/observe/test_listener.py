"""The admin server's sockets."""

from __future__ import annotations

import socket

import pytest

from launcher.findings import Exit, LauncherError
from launcher.observe.listener import close, listen
from tests.supervise.conftest import free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_it_listens(host: str) -> None:
    port = free_port()
    taken = listen(host, port)
    try:
        with socket.create_connection(("127.0.0.1", port), 5):
            pass
    finally:
        close(taken)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 5)


def test_a_taken_port_is_a_finding_and_nothing_stays_open() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(LauncherError) as caught:
        listen("127.0.0.1", port)
    assert caught.value.exit_code is Exit.CHECK_FAILED
    assert f"127.0.0.1:{port}" in caught.value.findings[0].what
    close(listen("127.0.0.1", port))


def test_an_address_of_another_machine_is_a_finding() -> None:
    with pytest.raises(LauncherError) as caught:
        listen("192.0.2.1", free_port())
    assert "--admin-host" in caught.value.findings[0].fix
