"""Each example of docs/python.md, in an interpreter that knows nothing but what the example says."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).parent.parent.parent.parent / "docs/python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
#: What the batch system gives to the part of a sweep.
SLURM = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2"}


def test_no_example_is_missed():
    assert len(EXAMPLES) == PAGE.read_text().count("```python") > 10


@pytest.mark.parametrize("code", [pytest.param(code, id=f"{n}") for n, code in enumerate(EXAMPLES)])
def test_an_example_runs(code, tmp_path):
    path = tmp_path / "test_example.py"
    path.write_text(code)
    # Code with tests is for pytest.
    runner = ["-m", "pytest", "-q"] if "\ndef test_" in code else []
    env = {name: value for name, value in os.environ.items() if name != "ZONEPLUG_CRASH"} | SLURM
    done = subprocess.run([sys.executable, *runner, path], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
