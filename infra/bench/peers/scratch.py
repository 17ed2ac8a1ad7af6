"""The scratch environment of the peers: a folder with a virtual environment and one of Node's modules.

Owns installing what is pinned, by the usual clients (pip, npm) from wherever these are set up to look. It is done once:
a file beside each environment says what is in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from infra.bench.peers.roster import NODE_AT_LEAST, WORKERS, Peer
from infra.node import packaged

_INSTALL_S: Final = 600
_TOLD: Final = 300
"""How many characters are told of what a command that failed has said last."""


class PeerFailed(Exception):
    """A peer cannot be installed or run; the message says why."""


def default_folder() -> Path:
    """Where the scratch environment is unless another place is named: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forbear" / "peers"


def prepare(folder: Path, peer: Peer) -> list[str]:
    """Install what a peer needs, if it is not there.

    Args:
        folder: the scratch environment; made if it is not there.
        peer: whose packages.

    Returns:
        The command that runs its script, to which the script's arguments are added.

    Raises:
        PeerFailed: it cannot be done.
    """
    home = folder / peer.script.partition(".")[0]
    try:
        home.mkdir(parents=True, exist_ok=True)
        if peer.runtime == "python":
            return _prepare_python(home, peer)
        return _prepare_node(home, peer)
    except OSError as error:
        raise PeerFailed(f"its environment cannot be made: {error}") from error


def _prepare_python(home: Path, peer: Peer) -> list[str]:
    python = home / "venv" / "bin" / "python"
    pins = [f"{package}=={version}" for package, version in peer.packages]
    if not _is_made(home, pins):
        said([sys.executable, "-m", "venv", "--clear", str(home / "venv")], _INSTALL_S)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        said([*pip, "--only-binary", ":all:", *pins], _INSTALL_S)
        _made(home, pins)
    return [str(python), "-I", str(WORKERS / peer.script)]


def _prepare_node(home: Path, peer: Peer) -> list[str]:
    node = find_node()
    pins = [f"{package}@{version}" for package, version in peer.packages]
    if not _is_made(home, pins):
        npm = shutil.which("npm")
        if npm is None:
            raise PeerFailed("there is no npm on the PATH: install Node")
        (home / "package.json").write_text(
            json.dumps({"private": True, "type": "module", "dependencies": dict(peer.packages)})
        )
        said([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], _INSTALL_S, cwd=home)
        _made(home, pins)
    # Node looks for modules from where a script stands.
    shutil.copyfile(WORKERS / peer.script, home / peer.script)
    return [node, str(home / peer.script)]


def find_node() -> str:
    """A Node that is new enough: the wheel's, if it is installed, else the machine's.

    Raises:
        PeerFailed: there is none.
    """
    wanted = ".".join(map(str, NODE_AT_LEAST))
    found = packaged() or shutil.which("node")
    if found is None:
        raise PeerFailed(f"there is no node on the PATH: install Node {wanted} or later")
    version = said([str(found), "--version"], 30).strip()
    if tuple(int(part) for part in version.removeprefix("v").split(".")[:2]) < NODE_AT_LEAST:
        raise PeerFailed(f"{found} is Node {version}: install {wanted} or later")
    return str(found)


def said(command: Sequence[str], seconds: float, cwd: Path | None = None) -> str:
    """Run a command to its end. Gives its standard output.

    Raises:
        PeerFailed: it cannot be started, does not end in time, or fails.
    """
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False, cwd=cwd
        )
    except OSError as error:
        raise PeerFailed(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{Path(command[0]).name} did not end within {seconds:.0f} s") from None
    if ended.returncode:
        last = " ".join((ended.stderr or ended.stdout).split())[-_TOLD:]
        raise PeerFailed(f"{Path(command[0]).name} ended with {ended.returncode}: {last}")
    return ended.stdout


def _is_made(home: Path, pins: Iterable[str]) -> bool:
    try:
        return (home / "installed").read_text().split() == list(pins)
    except OSError:
        return False


def _made(home: Path, pins: Iterable[str]) -> None:
    (home / "installed").write_text("\n".join(pins))
