"""The fixtures of the package, as a test of a user sees them."""

import os

import pytest

pytest_plugins = ["pytester"]


def test_a_disk_whose_power_is_cut(pytester):
    pytester.makepyfile("""
        import pytest

        def test_flushed(zoned_disk):
            zoned_disk.append(0, b"a" * 4096)
            zoned_disk.flush()
            zoned_disk.power_cut()
            assert bytes(zoned_disk.read(0, 4096)) == b"a" * 4096

        @pytest.mark.zoned_disk("mem,zones=3,zone-size=64K", seed=5)
        def test_other(zoned_disk):
            assert zoned_disk.nr_zones == 3 and zoned_disk.zone(0).wp == 0

        def test_broken(zoned_disk):
            zoned_disk.append(8, b"a" * 4096)
    """)
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*NotZoneStart*"])


def test_the_fixtures_are_listed(pytester):
    result = pytester.runpytest_subprocess("--fixtures", "-q")
    result.stdout.fnmatch_lines(["zoned_disk*", "zoned_mount*"])


def test_no_fuse_and_no_program_skip(pytester, monkeypatch):
    pytester.makepyfile("def test_mounted(zoned_mount): pass")
    monkeypatch.delenv("ZONEPLUG", raising=False)
    monkeypatch.setenv("PATH", "")
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*the program zoneplug is not installed*"])


@pytest.mark.skipif("ZONEPLUG" not in os.environ or not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="no mounts here")
def test_a_mount(pytester):
    pytester.makepyfile("""
        import pytest

        @pytest.mark.zoned_disk("mem,zones=4,zone-size=1M")
        def test_mounted(zoned_mount):
            assert len(list((zoned_mount / "seq").iterdir())) == 3
            with open(zoned_mount / "seq/0", "ab") as file:
                file.write(b"a" * 4096)
            assert (zoned_mount / "seq/0").read_bytes() == b"a" * 4096

        @pytest.mark.zoned_disk("mem,zone=4")
        def test_wrong(zoned_mount):
            pass
    """)
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*mem has no option zone*"])
    assert not os.path.ismount(pytester.path / "zoned_mount")
