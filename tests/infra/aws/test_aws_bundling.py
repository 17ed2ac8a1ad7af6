"""The functions' code as Lambda gets it: put together, opened, and run by the real runtime client.

`pytest -rP` shows the size, and how long each entry point takes to start.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import marshal
import os
import shutil
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType

import pytest

from infra.bench.cold_starts import HERE, runtime_client
from infra.bundling import (
    CERTIFICATES,
    FUNCTIONS,
    PRESETS,
    REQUIREMENTS,
    TASK_ROOT,
    Architecture,
    Bundle,
    BundlingError,
    alone,
)
from infra.database import CA_FILE
from infra.local.environment import Environment
from infra.local.runtime_api import Invocation
from tests.functions.events import http_event
from tests.infra.aws.reading import FUNCTIONS as NAMES

PROJECT = FUNCTIONS.parent / "pyproject.toml"

# AWS Lambda quotas: the deployment package unzipped, and zipped where it is uploaded directly (S3 takes more).
MOST_UNZIPPED = 250 << 20
MOST_ZIPPED = 50 << 20

MACHINES = {"arm64": 183, "x86_64": 62}  # e_machine in an ELF header: EM_AARCH64, EM_X86_64


def requirements() -> dict[str, str]:
    """Name and version of each requirement."""
    lines = (FUNCTIONS / REQUIREMENTS).read_text(encoding="utf-8").splitlines()
    pins = [line.split()[0] for line in lines if line and not line.startswith(("#", " "))]
    return dict(pin.split("==") for pin in pins)


def bundle(architecture: Architecture, folder: Path) -> Path:
    """A bundle, made once a test run, or twice if two processes want it at the same time."""
    output = folder / architecture
    if not output.exists():
        making = folder / f"{architecture}-{os.getpid()}"
        making.mkdir()
        Bundle(architecture=architecture).build(making)
        with suppress(OSError):
            making.rename(output)
    return output


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Where bundles lie: shared by the processes of a test run."""
    own = tmp_path_factory.getbasetemp()
    shared = (own if worker_id == "master" else own.parent) / "bundles"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A small folder of functions."""
    made = tmp_path / "functions"
    (made / "forbear" / "sql").mkdir(parents=True)
    (made / "ingest.py").write_text("import forbear\n")
    (made / "forbear" / "__init__.py").write_text("")
    (made / "forbear" / "sql" / "one.sql").write_text("SELECT 1")
    (made / CERTIFICATES).write_text("Amazon's")
    (made / REQUIREMENTS).write_text("")
    return made


def files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


def test_requirements_are_the_projects_pins_and_nothing_else() -> None:
    """What the tests run on is what is deployed: to change a pin, renew the file."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    direct = dict(pin.split("==") for pin in project["project"]["dependencies"])
    pins = dict(pin.split("==") for pin in project["tool"]["uv"]["constraint-dependencies"])
    wanted = {name.partition("[")[0]: version for name, version in direct.items()}
    found = requirements()
    assert wanted.items() <= found.items()
    assert (found.items() - wanted.items()) <= pins.items()
    assert "psycopg-binary" in found


def test_requirements_are_hashed_and_name_no_registry() -> None:
    text = (FUNCTIONS / REQUIREMENTS).read_text(encoding="utf-8")
    for requirement in text.replace("\\\n", " ").splitlines():
        assert requirement.startswith("#") or "--hash=sha256:" in requirement
    assert "://" not in text
    assert text.startswith("#")
    assert "uv pip compile" in text.partition("\n\n")[0]


def test_boto3_is_left_to_the_runtime() -> None:
    """It has one of its own, which would be doubled, and 26 MB."""
    assert not {"boto3", "botocore", "s3transfer"} & set(requirements())


@pytest.mark.parametrize("architecture", ["arm64", "x86_64"])
def test_a_bundle_has_machine_code_for_its_own_processor_only(architecture: Architecture, folder: Path) -> None:
    elves = 0
    for path in files(bundle(architecture, folder)):
        content = path.read_bytes()
        if content[:4] == b"\x7fELF":
            elves += 1
            assert int.from_bytes(content[18:20], "little") == MACHINES[architecture], path
        else:
            assert ".so" not in path.suffixes, path
    assert elves > 10


def test_a_bundle_is_within_the_limits(folder: Path) -> None:
    made = bundle("arm64", folder)
    unzipped = sum(path.stat().st_size for path in files(made))
    archive = folder / "arm64.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for path in files(made):
            opened.write(path, path.relative_to(made))
    zipped = archive.stat().st_size
    sys.stdout.write(f"arm64 bundle: {zipped / 1e6:.1f} MB zipped, {unzipped / 1e6:.1f} MB unzipped\n")
    assert zipped < MOST_ZIPPED
    assert unzipped < MOST_UNZIPPED


def test_a_bundle_has_the_six_entry_points_and_all_of_the_library(folder: Path) -> None:
    made = bundle("arm64", folder)
    ours = {path.name for path in FUNCTIONS.glob("*.py")}
    assert ours == {f"{name}.py" for name in NAMES}
    library = {
        path.relative_to(FUNCTIONS)
        for path in files(FUNCTIONS / "forbear")
        if "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert CERTIFICATES in library
    for name in [*map(Path, ours), *library]:
        assert (made / name).read_bytes() == (FUNCTIONS / name).read_bytes()
    tops = {path.name for path in made.iterdir()}
    assert not tops & {"bin", "boto3", "botocore", REQUIREMENTS}


def test_the_certificates_lie_where_the_database_urls_say(folder: Path) -> None:
    assert b"BEGIN CERTIFICATE" in (bundle("arm64", folder) / Path(CA_FILE).relative_to(TASK_ROOT)).read_bytes()


def test_every_module_comes_with_its_bytecode(folder: Path) -> None:
    """/var/task is read-only: what is not compiled is compiled at every cold start."""
    made = bundle("arm64", folder)
    modules = [path for path in files(made) if path.suffix == ".py"]
    assert len(modules) > 500
    for path in modules:
        header, code = _bytecode(path)
        assert header[:4] == importlib.util.MAGIC_NUMBER
        # PEP 552: by hash, and the hash unchecked: neither a time nor a second read of the source decides.
        assert int.from_bytes(header[4:8], "little") == 0b01
        assert code.co_filename == f"{TASK_ROOT}/{path.relative_to(made)}"


def _bytecode(path: Path) -> tuple[bytes, CodeType]:
    content = (path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc").read_bytes()
    code = marshal.loads(content[16:])  # noqa: S302 - we have compiled it ourselves
    assert isinstance(code, CodeType)
    return content[:16], code


def test_lambda_may_read_all_of_it(folder: Path, sources: Path, tmp_path: Path) -> None:
    """It runs the code as another user than the one who bundled it."""
    old = os.umask(0o077)
    try:
        made = tmp_path / "made"
        made.mkdir()
        Bundle(architecture="arm64", functions=sources).build(made)
    finally:
        os.umask(old)
    for path in [*made.rglob("*"), *bundle("arm64", folder).rglob("*")]:
        assert path.stat().st_mode & 0o777 in ((0o755,) if path.is_dir() else (0o644, 0o755))


def test_two_bundles_of_the_same_sources_are_the_same(folder: Path, tmp_path: Path) -> None:
    one, two = bundle(HERE, folder), tmp_path / "again"
    two.mkdir()
    Bundle(architecture=HERE).build(two)
    assert {path.relative_to(one) for path in one.rglob("*")} == {path.relative_to(two) for path in two.rglob("*")}
    for path in files(one):
        assert path.read_bytes() == (two / path.relative_to(one)).read_bytes(), path


def test_a_bundle_is_made_anew_when_what_it_is_made_of_changes_and_only_then(sources: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("mine")
    before = Bundle(architecture="arm64", functions=sources)
    digests = {before.digest()}
    digests.add(Bundle(architecture="x86_64", functions=sources).digest())
    digests.add(Bundle(architecture="arm64", functions=sources, presets=own).digest())
    digests.add(Bundle(architecture="arm64", functions=sources, ca_file=own).digest())
    assert len(digests) == 4

    cached = sources / "forbear" / "__pycache__"
    cached.mkdir()
    (cached / "one.pyc").write_text("compiled")
    (sources / "README.md").write_text("about")
    assert before.digest() in digests

    for number, path in enumerate([REQUIREMENTS, "ingest.py", "forbear/sql/one.sql", "forbear/sql/two.sql"], start=5):
        (sources / path).write_text("changed")
        digests.add(before.digest())
        assert len(digests) == number


def test_own_presets_and_certificates_take_their_places(sources: Path, tmp_path: Path) -> None:
    presets, ca_file, made = tmp_path / "mine.toml", tmp_path / "ours.pem", tmp_path / "made"
    presets.write_text("[mine]")
    ca_file.write_text("ours")
    made.mkdir()
    Bundle(architecture="arm64", functions=sources, presets=presets, ca_file=ca_file).build(made)
    assert (made / PRESETS).read_text() == "[mine]"
    assert (made / CERTIFICATES).read_text() == "ours"


def test_a_file_that_is_gone_is_named(sources: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone.toml"
    with pytest.raises(BundlingError, match=r"gone\.toml cannot be read .*correct its path"):
        Bundle(architecture="arm64", functions=sources, presets=gone).digest()


def fake_uv(folder: Path, said: str) -> str:
    """A program that says something and fails."""
    script = folder / "uv"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("httptools==0.9.0 has no wheels with a matching platform tag", "httptools.*|pin a version in pyproject.toml"),
        ("Hash mismatch for `idna==3.20`", "renew it as its first lines say"),
        ("error: client error (Connect)", "see to the network"),
    ],
)
def test_what_uv_cannot_do_is_told_with_what_to_do(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, advice: str
) -> None:
    monkeypatch.setenv("UV", fake_uv(tmp_path, said))
    with pytest.raises(BundlingError, match=advice) as error:
        Bundle(architecture="arm64", functions=sources).build(tmp_path)
    assert said in str(error.value)


def test_a_missing_uv_is_told_with_how_to_get_it(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(BundlingError, match="pip install uv"):
        Bundle(architecture="arm64", functions=sources).build(tmp_path)


def test_bytecode_of_another_python_is_not_made(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.bundling.PYTHON", (3, 12))
    with pytest.raises(BundlingError, match=r"bytecode needs 3\.12: run `python3 -m uv sync`"):
        Bundle(architecture="arm64", functions=sources).build(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="Lambda's runtime client and the bundle are for Linux")
@pytest.mark.parametrize("function", NAMES)
async def test_an_entry_point_starts_under_lambdas_own_runtime_client(
    function: str, folder: Path, tmp_path: Path
) -> None:
    """With the packages of the bundle and no other; what is missing there would be missing in Lambda."""
    made = await asyncio.to_thread(bundle, HERE, folder)
    lines: list[str] = []
    environment = Environment(
        host="127.0.0.1",
        command=[sys.executable, "-S", "-B", "-m", "awslambdaric", f"{function}.handler"],
        variables={
            "PYTHONPATH": f"{made}:{runtime_client(tmp_path)}",
            "AWS_LAMBDA_FUNCTION_NAME": function,
            "AWS_LAMBDA_LOG_FORMAT": "JSON",
            "AWS_REGION": "eu-central-1",
            "FORBEAR_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        },
        folder=made,
        init_timeout_s=60,
        on_line=lines.append,
        on_exit=lambda _: None,
    )
    began = time.perf_counter()
    try:
        refused = await environment.start()
        sys.stdout.write(f"{function}: ready after {(time.perf_counter() - began) * 1000:.0f} ms\n")
        assert refused is None, lines
        if function == "manage":
            payload = json.dumps(http_event("GET", "/v1/health")).encode()
            outcome, taken = await environment.run(Invocation("one", "arn", "", 30, payload))
            assert taken
            assert json.loads(outcome.payload)["statusCode"] == 200
    finally:
        await environment.stop(grace_s=2)


def test_what_a_tool_has_left_among_the_sources_is_not_shipped(tmp_path: Path) -> None:
    functions = tmp_path / "functions"
    shutil.copytree(FUNCTIONS, functions)
    before = Bundle(architecture="arm64", functions=functions).digest()
    (functions / "forbear" / ".env").write_text("SECRET=1")
    (functions / "forbear" / ".#db.py").write_text("")
    (functions / "forbear" / "db.py~").write_text("")
    (functions / "forbear" / ".git").mkdir()
    (functions / "forbear" / ".git" / "config").write_text("")
    assert Bundle(architecture="arm64", functions=functions).digest() == before


def test_two_who_write_one_assembly_take_turns(tmp_path: Path) -> None:
    """CDK would delete the bundle that the other one is making, and use what is left of it."""
    order: list[str] = []

    def second() -> None:
        with alone(tmp_path / "out"):
            order.append("second")

    with alone(tmp_path / "out"):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
