from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.bench.figure import Figure
from infra.bench.peers.measuring import failed, measure
from infra.bench.peers.roster import PEERS, WORKERS, Peer
from infra.bench.peers.scratch import PeerFailed, default_folder, prepare, said
from infra.bench.world import Scale, World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A PostgreSQL and a receiver."""
    with World() as running:
        yield running


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.script)
def test_every_peer_has_its_script_and_exact_versions(peer: Peer) -> None:
    """A script that is there, packages that are pinned, and none of them a dependency of ours by accident."""
    assert (WORKERS / peer.script).is_file()
    assert peer.packages
    for _, version in peer.packages:
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)+", version)
    for part in peer.name.split(" + "):
        assert part in peer.versions


def test_no_script_is_without_a_peer() -> None:
    """Every worker is measured."""
    assert {path.name for path in WORKERS.iterdir() if path.suffix in {".py", ".mjs"}} == {
        peer.script for peer in PEERS
    }


def test_the_scratch_environment_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the user says, or in .cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "forbear" / "peers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "forbear" / "peers"


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path) -> None:
    """What the installer said last is in the message; a folder that cannot be made is told, too."""
    impossible = replace(PEERS[-1], packages=(("no such package", "1.0"),))
    with pytest.raises(PeerFailed, match=r"python ended with [0-9]+: .*no such package"):
        prepare(tmp_path, impossible)
    (tmp_path / "file").touch()
    with pytest.raises(PeerFailed, match="cannot be made"):
        prepare(tmp_path / "file", PEERS[-1])


def test_a_command_that_fails_or_hangs_says_so() -> None:
    """Its exit code and what it said last, or that it did not end."""
    with pytest.raises(PeerFailed, match="sh ended with 3: oh no"):
        said(["sh", "-c", "echo oh no >&2; exit 3"], 10)
    with pytest.raises(PeerFailed, match="did not end within"):
        said(["sleep", "30"], 0.05)
    with pytest.raises(PeerFailed, match="cannot be run"):
        said(["/nowhere/at/all"], 1)


def test_a_peer_that_failed_is_a_figure_of_nothing() -> None:
    """It delivered nothing, and the reason stands with it."""
    figure = failed(PEERS[0], "there is no npm")
    assert figure.values == (0.0,)
    assert figure.conditions["failed"] == "there is no npm"
    assert PEERS[0].name in figure.name
    assert "graphile-worker 0.18.0" in str(figure.conditions["versions"])


QUEUE = """
import json, sys, psycopg
step, database, receiver, jobs, body, endpoints = sys.argv[1:]
with psycopg.connect(database, autocommit=True) as connection:
    if step == "fill":
        connection.execute("CREATE TABLE queue (done boolean DEFAULT false, url text)")
        for n in range(int(jobs)):
            connection.execute("INSERT INTO queue (url) VALUES (%s)", (receiver,))
    else:
        {drain}
print(json.dumps({{"seconds": 0.5, "cpu_s": 0.25}}) if step == "drain" else "")
"""


def measured(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drain: str) -> dict[str, Figure]:
    """The figures of a peer that drains its queue so, ten jobs in two rounds, beside Forbear's."""
    script = tmp_path / "queue_worker.py"
    script.write_text(QUEUE.format(drain=drain))
    monkeypatch.setattr("infra.bench.peers.measuring.prepare", lambda _folder, _peer: [sys.executable, str(script)])
    peer = Peer("own + nothing", "python", (), script.name, "not at all", "SELECT count(*) FROM queue WHERE NOT done")
    return {figure.name: figure for figure in measure(world, Scale(quick=True, repeats=2), tmp_path, (peer,), jobs=10)}


def test_forbear_and_a_peer_are_measured_side_by_side(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates, CPU and the ratio, one value a round; that the peer does less stands with its figures."""
    figures = measured(world, tmp_path, monkeypatch, 'connection.execute("UPDATE queue SET done = true")')
    assert figures["own + nothing: deliveries"].values == pytest.approx([20, 20])
    assert figures["own + nothing: worker's CPU"].values == pytest.approx([25_000, 25_000])
    assert "no signature" in str(figures["own + nothing: deliveries"].conditions["does less"])
    ours, ratio = figures["Forbear: deliveries"], figures["Forbear over own + nothing"]
    assert ratio.values == pytest.approx([value / 20 for value in ours.values])


@pytest.mark.parametrize(
    ("drain", "why"),
    [
        ("pass", "it left 10 of 10 jobs"),
        ('sys.exit("no luck")', "ended with 1: no luck"),
        ('connection.execute("UPDATE queue SET done = true"); print("what?"); sys.exit(0)', "said 'what?"),
    ],
)
def test_a_peer_that_does_not_do_the_job_is_told_and_forbear_is_measured(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drain: str, why: str
) -> None:
    """Jobs that it left, a crash, a worker that says nothing of use: no rate is made of these."""
    figures = measured(world, tmp_path, monkeypatch, drain)
    assert why in str(figures["own + nothing: deliveries"].conditions["failed"])
    assert len(figures["Forbear: deliveries"].values) == 2
    assert not [name for name in figures if name.startswith("Forbear over")]


@pytest.mark.peers
@pytest.mark.timeout(900)
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.script)
def test_a_peer_delivers_two_hundred_jobs(world: World, tmp_path: Path, peer: Peer) -> None:
    """The real one, installed into a scratch environment, does the whole job."""
    figures = {figure.name: figure for figure in measure(world, Scale(quick=True, repeats=1), tmp_path, (peer,), 200)}
    rate = figures[f"{peer.name}: deliveries"]
    assert "failed" not in rate.conditions, json.dumps(dict(rate.conditions))
    assert rate.median > 0
