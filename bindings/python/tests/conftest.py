"""`--full`: also tests that need large packages, or take long."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also tests that need large packages or take long")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: runs with --full only")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="runs with --full"))
