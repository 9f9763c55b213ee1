"""Fixtures of pytest for code on zoned disks. pytest finds them when the package is installed."""

import os
import shutil
import subprocess

import pytest

#: How long a mount may take to end, in seconds.
_PATIENCE = 30
#: The exit code of the command for a specification that is wrong.
_USAGE = 2


def pytest_configure(config):
    config.addinivalue_line("markers", "zoned_disk(disk, seed=1): the disk of the fixtures zoned_disk and zoned_mount")


def _marked(request, default):
    """The specification of a test's disk, and its seed."""
    marker = request.node.get_closest_marker("zoned_disk")
    arguments, keywords = (marker.args, marker.kwargs) if marker else ((), {})
    return (arguments[0] if arguments else keywords.get("disk", default)), keywords.get("seed", 1)


@pytest.fixture
def zoned_disk(request):
    """An empty disk in memory: a `zoneplug.crash.Disk`, whose `power_cut()` cuts the power.

    `@pytest.mark.zoned_disk("mem,zones=4,zone-size=64K", seed=3)` is another disk, or another seed of the cuts.
    """
    import zoneplug.crash  # Not before a test asks for a disk: each run of pytest imports this file.

    disk, seed = _marked(request, "mem,zones=8,zone-size=1M")
    with zoneplug.crash.Disk(disk, seed=seed) as disk:
        yield disk


@pytest.fixture
def zoned_mount(request, tmp_path):
    """The path of a directory with the zones of an empty disk as files (`seq/0` and so on), mounted by `zoneplug mount`.

    Skipped without FUSE or the program `zoneplug`, which the environment variable ZONEPLUG may name.
    """
    program = os.environ.get("ZONEPLUG") or shutil.which("zoneplug")
    why = _no_mount(program)
    if why:
        pytest.skip(why)
    disk, _ = _marked(request, "mem,zones=8,zone-size=1M")
    path = tmp_path / "zoned_mount"
    path.mkdir()
    mount = subprocess.Popen(
        [program, "mount", disk, path, "-o", "buffered"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        # The program prints a line when the files are there.
        if not mount.stdout.readline():
            said = f"zoneplug mount: {mount.stderr.read().strip()}"
            # The user has named a wrong disk, or this machine mounts nothing.
            (pytest.fail if mount.wait(_PATIENCE) == _USAGE else pytest.skip)(said)
        yield path
    finally:
        mount.terminate()
        try:
            mount.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            mount.kill()
            mount.communicate()


def _no_mount(program):
    """Why no disk can be mounted here, or None."""
    if not program:
        return "the program zoneplug is not installed: PATH or the environment variable ZONEPLUG names none"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no FUSE: this user may not open /dev/fuse"
    return None
