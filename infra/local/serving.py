"""A listening socket on loopback and the ASGI application behind it.

Owns binding, accepting and closing; knows nothing of what is served. uvicorn's HTTP protocol is used without its server
class, whose main loop polls ten times a second and takes over the process's signal handlers.
"""

import asyncio
import errno
import ipaddress
import os
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

# How long an idle connection is kept, in seconds. A runtime's connection is silent while its handler works, for up to
# the 900 s that Lambda allows.
_KEEP_ALIVE_S = 1_000


class PortTaken(Exception):
    """Somebody else listens on the wanted port.

    Attributes:
        port: The port that is taken.
    """

    def __init__(self, port: int) -> None:
        super().__init__(f"Port {port} is taken: stop what listens there, or choose another port.")
        self.port = port


class Listener:
    """One HTTP/1.1 server in the running event loop, for one application.

    Attributes:
        host: The address it is bound to.
        port: The port it is bound to.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        """Bind the socket at once, so that the address is known before anything is served.

        Args:
            host: A literal loopback address.
            port: The port, or 0 for any free one.

        Raises:
            PortTaken: If somebody else listens on the port.
            ValueError: If the host is no loopback address.
        """
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"The local stack serves loopback only, not {host}.")
        self._socket = _bind(host, port)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self.host = host
        self.port: int = self._socket.getsockname()[1]

    @property
    def authority(self) -> str:
        """Host and port as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def start(self, app: ASGIApp) -> None:
        """Accept connections.

        Args:
            app: What answers; it sees HTTP requests only.
        """
        config = uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        config.load()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpToolsProtocol(config, self._state, {}), sock=self._socket
        )

    def stop_accepting(self) -> None:
        """Take no further connections or requests; what is being answered goes on."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._state.connections):
                connection.shutdown()

    def hang_up(self) -> None:
        """Close every connection now, whatever goes over it; new ones are accepted."""
        for connection in list(self._state.connections):
            connection.transport.abort()

    async def stop(self, grace_s: float) -> None:
        """Close the socket and every connection.

        Args:
            grace_s: How long, in seconds, requests under way may still be answered before they are cut off.
        """
        if self._server is None:
            self._socket.close()
            return
        self.stop_accepting()
        try:
            async with asyncio.timeout(grace_s):
                if self._state.tasks:
                    await asyncio.wait(set(self._state.tasks))
                await self._server.wait_closed()
        except TimeoutError:
            self.hang_up()
            await self._server.wait_closed()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only where a socket says that it is TCP, and accepted
    # ones say what the listening one says. Without it, delayed acknowledgements make two writes take 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two listen on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # asyncio listens later, but only listening tells whether the port is taken.
        listener.listen(1_024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(port) from error
        raise
    return listener
