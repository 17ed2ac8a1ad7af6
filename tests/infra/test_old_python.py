from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("version", ["(3, 12, 9)", "(3, 8, 0)"])
def test_an_older_python_is_told_in_a_line(version: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.version_info = {version}; import infra.cli.main"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "needs 3.13" in done.stderr
