"""Figures as files."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import pytest
from hypothesis import HealthCheck, example, given, settings

from infra.plotting import files
from infra.plotting.figure import Figure, Series
from infra.plotting.files import drawn, write
from tests.infra.plotting.drawings import GRID, LOG_TIME, ONE, figures, panel

SVG = "{http://www.w3.org/2000/svg}"


def parsed(figure: Figure) -> ET.Element:
    return ET.fromstring(drawn(figure, "svg"))  # noqa: S314 - our own


def texts(figure: Figure) -> list[str]:
    return ["".join(element.itertext()) for element in parsed(figure).iter(f"{SVG}text")]


def lines(figure: Figure) -> list[ET.Element]:
    """The paths of series, in their panels and in the legend."""
    return [path for path in parsed(figure).iter(f"{SVG}path") if "stroke-width: 1.4" in path.get("style", "")]


def test_an_svg_names_what_it_shows() -> None:
    shown = texts(ONE)
    for text in ("Attempts over time", "since the start", "attempts", "slow", "fast", "jitter", "1 min", "1 h"):
        assert text in shown


def test_an_svg_names_panels_spans_and_states() -> None:
    shown = texts(GRID)
    for text in ("naive", "default", "load", "state", "outage", "closed", "half-open", "open", "30 min"):
        assert text in shown
    assert shown.count("outage") == 1


def test_an_svg_has_a_title_and_a_description_for_those_who_do_not_see_it() -> None:
    document = parsed(ONE)
    assert document.findtext(f"{SVG}title") == "Attempts over time"
    assert "Two schedules." in "".join(document.itertext())


def test_a_png_is_one_of_a_size_for_a_page() -> None:
    picture = drawn(ONE, "png")
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (1_080, 691)


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_same_figure_gives_the_same_bytes_whatever_the_user_s_settings(form: Literal["svg", "png"]) -> None:
    first = drawn(GRID, form)
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "savefig.transparent": True}):
        assert drawn(GRID, form) == first
        assert mpl.rcParams["font.size"] == 30


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_file_says_neither_when_nor_by_which_version_it_was_drawn(form: Literal["svg", "png"]) -> None:
    drawing = drawn(ONE, form)
    assert b"dc:date" not in drawing
    assert mpl.__version__.encode() not in drawing


def test_the_background_is_white() -> None:
    """So that black letters can be read on a dark page as well."""
    first = next(parsed(ONE).iter(f"{SVG}path"))
    assert first.get("style") == "fill: #ffffff"


def test_files_are_small() -> None:
    long = Series("load", [float(at) for at in range(1_440)], [at % 97 for at in range(1_440)])
    assert len(drawn(Figure("", ((panel(long),),)), "svg")) < 100_000
    assert len(drawn(GRID, "svg")) < 100_000


def test_series_of_one_name_look_the_same_and_others_do_not() -> None:
    """Also without their colours: by their marks."""
    many = [Series(f"s{at}", [1, 2], [at, at]) for at in range(10)]
    styles = [line.get("style") for line in lines(Figure("", ((panel(*many), panel(many[3])),)))]
    # Ten lines, one of them once more, and ten in the legend.
    assert len(styles) == 21
    assert styles[10] == styles[3]
    assert styles[11:] == styles[:10]
    assert len(set(styles)) == 10


def test_what_a_logarithm_cannot_show_is_at_the_edge() -> None:
    """A first attempt, at 0 seconds, is drawn where the axis begins."""
    at_zero = lines(Figure("", ((panel(Series("a", [0, 10, 100], [1, 2, 3]), x=LOG_TIME),),)))
    at_edge = lines(Figure("", ((panel(Series("a", [10, 10, 100], [1, 2, 3]), x=LOG_TIME),),)))
    assert [line.get("d") for line in at_zero] == [line.get("d") for line in at_edge]


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@example(Figure("$x$", ((panel(Series("_hidden", [1], [1]), Series("$\\frac{", [1], [2]), title="$"),),)))
@example(Figure("漢字", ((panel(Series("☃\U0001f600", [1], [1])),),)))
@example(Figure("", ((panel(),),)))
@given(figures())
def test_whatever_can_be_a_figure_can_be_drawn(figure: Figure) -> None:
    shown = texts(figure)
    for name in figure.series_names:
        assert not name.strip() or name in shown


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG")])
def test_a_file_is_of_the_kind_that_its_name_says(tmp_path: Path, name: str, begins: bytes) -> None:
    write(ONE, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize("name", ["a.gif", "a", "a.svg.gz"])
def test_another_kind_of_file_is_refused_and_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"neither in \.svg nor in \.png"):
        write(ONE, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_palette_is_okabe_and_ito_s() -> None:
    assert set(files._COLOURS) <= {
        *("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"),
    }
