"""How a process is left, whatever it was doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HALF = "import sys, types; sys.modules['victims.common.files'] = types.ModuleType('files')"
UNUSABLE = "import sys; sys.modules['psutil'] = None  # which fails to be imported"


@pytest.mark.parametrize(("before", "line"), [(HALF, b"stopped"), (UNUSABLE, b"")])
def test_what_is_imported_meanwhile_does_not_keep_it(before, line):
    """It is in the middle of an import that a signal comes most often."""
    left = subprocess.run(
        [sys.executable, "-c", f"{before}\nfrom audit.shell.interrupts import leave\nleave(130, 'stopped')"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert left.returncode == 130
    assert left.stderr == line


def test_what_ends_others_is_there_before_a_signal_can_come():
    """Two threads that import one module at once may see half of it, and the process stayed for good."""
    code = "from audit.shell.interrupts import watch\nwatch()\nimport sys\nassert 'psutil' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
