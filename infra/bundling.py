"""What the functions' code is in Lambda: their sources, the packages they import, and bytecode for both.

Owns how that folder is made, without Docker, on any machine, byte for byte the same from the same sources; and when it
has to be made anew. Knows no function and no CDK.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

FUNCTIONS: Final = Path(__file__).parent.parent / "functions"
REQUIREMENTS: Final = "requirements.txt"
PYTHON: Final = (3, 13)
TASK_ROOT: Final = "/var/task"
"""Where Lambda unpacks the folder."""

PRESETS: Final = "own-presets.toml"
"""Where the file of own presets lies, relative to the functions."""

CERTIFICATES: Final = Path("forbear", "rds-ca.pem")
"""Where the authorities lie that sign the database's certificate; own ones take this place."""

type Architecture = Literal["arm64", "x86_64"]

# Lambda's Python 3.13 runs on Amazon Linux 2023, whose glibc is 2.34. psycopg has no older wheel for aarch64 than this.
_PLATFORMS: Final[dict[Architecture, str]] = {
    "arm64": "aarch64-manylinux_2_28",
    "x86_64": "x86_64-manylinux_2_28",
}
# What is shipped of our own folder: not what an editor or a tool has left there.
_OURS: Final = frozenset({".py", ".sql", ".toml", ".pem"})
# What nothing reads when the functions run. Of a package's metadata METADATA stays: scanners for vulnerable packages
# (Amazon Inspector among them) go by it, and importlib.metadata.
_NAMES_LEFT_OUT: Final = frozenset({"__pycache__", ".lock", "RECORD", "INSTALLER", "REQUESTED", ".DS_Store"})
_ENDS_LEFT_OUT: Final = (".pyc", ".pyi", ".pyx", ".pxd")


class BundlingError(Exception):
    """The functions' code cannot be put together; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The functions' code for one stack.

    Attributes:
        architecture: the processor it will run on, whatever this machine has.
        presets: file of own presets, which it then has at `PRESETS`.
        ca_file: PEM file of the authorities that it then has at `CERTIFICATES`, instead of Amazon's for RDS.
        functions: folder of the sources and of `REQUIREMENTS`.
    """

    architecture: Architecture
    presets: Path | None = None
    ca_file: Path | None = None
    functions: Path = FUNCTIONS

    def digest(self) -> str:
        """A SHA-256, in hex, of everything that the bundle is made of, this recipe included.

        Raises:
            BundlingError: a source cannot be read.
        """
        digest = hashlib.sha256()
        for name, path in [("recipe", Path(__file__)), *self._sources()]:
            content = _read(path)
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        digest.update(self.architecture.encode())
        return digest.hexdigest()

    def build(self, output: Path) -> None:
        """Make the bundle.

        Args:
            output: an empty folder.

        Raises:
            BundlingError: uv or the right Python is missing, uv fails, or a source cannot be read.
        """
        if sys.version_info[:2] != PYTHON:
            raise BundlingError(
                f"this is Python {sys.version_info.major}.{sys.version_info.minor}, but the functions' bytecode needs "
                f"{PYTHON[0]}.{PYTHON[1]}: run `python3 -m uv sync` and then CDK by `python3 -m uv run`, "
                "which take the version from .python-version"
            )
        self._install(output)
        for path in sorted(output.rglob("*"), reverse=True):
            if _left_out(path.relative_to(output)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, path in self._sources():
            if name != REQUIREMENTS:
                target = output / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_read(path))
        _compile(output)
        # Lambda runs the code as another user than the one who owns it, and reads nothing that a strict umask hides.
        for path in output.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)

    def _sources(self) -> Iterator[tuple[str, Path]]:
        """Every file of ours, with its place in the bundle, in a fixed order."""
        own = {PRESETS: self.presets, CERTIFICATES.as_posix(): self.ca_file}
        names = [REQUIREMENTS, *(path.name for path in self.functions.glob("*.py"))]
        names += [
            path.relative_to(self.functions).as_posix()
            for path in (self.functions / "forbear").rglob("*")
            if path.is_file()
            and path.suffix in _OURS
            and not path.name.startswith(".")
            and not _left_out(path.relative_to(self.functions))
        ]
        for name in sorted({*names, *(name for name, path in own.items() if path)}):
            yield name, own.get(name) or self.functions / name

    def _install(self, output: Path) -> None:
        requirements = self.functions / REQUIREMENTS
        command = [
            *(_uv(), "pip", "install", "--quiet", "--target", str(output), "--python", sys.executable),
            *("--python-platform", _PLATFORMS[self.architecture], "--python-version", f"{PYTHON[0]}.{PYTHON[1]}"),
            # Wheels only: what is built here runs here. No dependency but what is listed, nothing that is not its hash.
            *("--only-binary", ":all:", "--no-deps", "--require-hashes", "--requirement", str(requirements)),
            *("--no-compile-bytecode", "--link-mode", "copy"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.functions)
        if done.returncode:
            raise BundlingError(f"{_advice(done.stderr, self.architecture)} uv said:\n{done.stderr.strip()}")


@contextmanager
def alone(output: Path) -> Iterator[None]:
    """Let nobody else of us write to a cloud assembly's folder meanwhile.

    CDK deletes the unfinished bundle that it finds there, also one that somebody else is making, and takes what is left
    of it for whole.

    Args:
        output: the folder; it is made if it is missing.
    """
    output.mkdir(parents=True, exist_ok=True)
    with (output / "forbear.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundlingError(f"{path} cannot be read ({error.strerror}): restore it, or correct its path") from error


def _left_out(path: Path) -> bool:
    return (
        not _NAMES_LEFT_OUT.isdisjoint(path.parts)
        or path.name.endswith(_ENDS_LEFT_OUT)
        or path.parts[0] == "bin"  # commands that packages bring along
    )


def _uv() -> str:
    """Where uv is: it tells whom it runs, may be on the PATH, or came with pip."""
    found = os.environ.get("UV") or shutil.which("uv")
    if found is None:
        beside = Path(sys.base_prefix, "bin", "uv")
        if not beside.exists():
            raise BundlingError("uv is missing, which fetches the functions' packages: run `python3 -m pip install uv`")
        found = str(beside)
    return found


def _advice(said: str, architecture: Architecture) -> str:
    if "no wheels" in said or "no usable wheels" in said:
        return (
            f"A package of functions/{REQUIREMENTS} has no wheel for {_PLATFORMS[architecture]}: "
            "pin a version in pyproject.toml that has one, and renew the file as its first lines say."
        )
    if "hash" in said.lower():
        return f"A package is not what functions/{REQUIREMENTS} expects: renew it as its first lines say."
    return "The functions' packages could not be fetched: see to the network and to uv's package index, and try again."


def _compile(output: Path) -> None:
    """Put bytecode beside every module.

    /var/task cannot be written, so without it every cold start compiles all that it imports: on a whole CPU 0.4 of
    0.7 s. Bytecode belongs to CPython 3.13, not to a processor. It is not checked against the source, because Lambda's
    file times are not this machine's.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"),
            *("-s", str(output), "-p", TASK_ROOT, str(output)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise BundlingError(f"a module cannot be compiled: correct it, or pin another version:\n{done.stdout.strip()}")
