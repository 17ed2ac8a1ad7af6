"""The group cold-start: real starts from the real bundle."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infra.bench.cold_starts import HERE, StartFailed, runtime_client, start, unzipped_bytes, without_bytecode
from infra.bench.groups import cold_start
from infra.bench.world import Scale, World
from infra.bundling import Bundle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Lambda's runtime client and the bundle are for Linux")


@pytest.mark.timeout(300)
def test_a_quick_run_starts_ingest_and_the_claimer(world: World) -> None:
    figures = {figure.name: figure for figure in cold_start.measure(world, Scale(quick=True, repeats=1))}
    assert {name.partition(": ")[0] for name in figures} == {"bundle, unzipped", *cold_start.QUICK}
    assert {name for name, figure in figures.items() if figure.aim is not None} == {"ingest: import, CPU"}
    assert {name for name, figure in figures.items() if figure.counted} == {
        f"{function}: modules {when}"
        for function in cold_start.QUICK
        for when in ("imported", "after the first invocation")
    }
    assert all(figure.median > 0 for figure in figures.values())
    with world.connect() as connection:
        assert connection.execute("SELECT count(*) FROM forbear.history WHERE state = 'delivered'").fetchone() == (2,)


@pytest.mark.timeout(300)
def test_a_full_run_starts_every_function(world: World) -> None:
    figures = {figure.name: figure for figure in cold_start.measure(world, Scale(quick=False, repeats=1))}
    starts = {name.partition(": ")[0] for name, figure in figures.items() if figure.unit == "ms"}
    assert starts == {path.stem for path in Bundle(architecture=HERE).functions.glob("*.py")}
    assert figures["bundle, zipped"].median < figures["bundle, unzipped"].median
    compiled = figures["ingest: import, CPU"].median
    assert figures["ingest: import without bytecode, CPU"].median > compiled


def test_a_function_that_cannot_start_is_told_with_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module")
    with pytest.raises(StartFailed, match=r"broken does not start: .*no_such_module"):
        start("broken", tmp_path, runtime_client(tmp_path), {}, {})


def test_a_function_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def handler(event, context):\n    raise ValueError('no luck')")
    with pytest.raises(StartFailed, match=r"failing fails: .*no luck"):
        start("failing", tmp_path, runtime_client(tmp_path), {}, {})


def test_what_a_start_costs_is_told_beside_the_handlers_answer(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(
        "import time, fractions, colorsys\n"
        "while time.process_time() < 0.5: pass\n"
        "def handler(event, context):\n"
        "    import wave\n"
        "    return event | {'seen': True}\n"
    )
    started = start("busy", tmp_path, runtime_client(tmp_path), {}, {"n": 1})
    assert started.answer == {"n": 1, "seen": True}
    assert started.client_cpu_s + started.import_cpu_s > 0.49
    assert {"busy", "fractions", "colorsys"} <= set(started.imported)
    assert started.modules > len(started.imported)
    assert started.ready_s >= started.import_s


def test_a_bundle_without_bytecode_is_the_same_otherwise(tmp_path: Path) -> None:
    (tmp_path / "made" / "package" / "__pycache__").mkdir(parents=True)
    (tmp_path / "made" / "package" / "module.py").write_text("1")
    (tmp_path / "made" / "package" / "__pycache__" / "module.cpython-313.pyc").write_text("22")
    bare = without_bytecode(tmp_path / "made", tmp_path)
    assert [path.name for path in bare.rglob("*")] == ["package", "module.py"]
    assert (unzipped_bytes(bare), unzipped_bytes(tmp_path / "made")) == (1, 3)
