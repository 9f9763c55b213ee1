"""Sweeps on clusters of this machine: Dask and Ray, each with a worker that is killed on the way, and MPI."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sweep_cells
from sweep_cells import cells_of, expected, figure, killer, moody, noted, runs

import zoneplug
from zoneplug.sweeps import RayExecutor, SerialExecutor

TESTS = str(Path(sweep_cells.__file__).parent)


def check_kill(executor, tmp_path):
    """A worker is killed while cells run: all results are there, and they and the file are those of one thread."""
    notes = tmp_path / "notes"
    notes.mkdir()
    cells = cells_of(24, notes=str(notes), s=0.2)
    kill = killer(notes, 5)
    rows = zoneplug.sweep(cells, run=noted, executor=executor, file=tmp_path / "file", progress=kill)
    ran = runs(notes)
    assert len(kill.pids) == 1 and len(ran) == 24
    again = sorted(n for n, times in ran.items() if times > 1)
    assert again, "the cell of the worker that was killed ran again"
    assert rows == expected(cells)
    assert rows == zoneplug.sweep(cells, run=noted, executor=SerialExecutor(), file=tmp_path / "serial")
    assert (tmp_path / "file").read_bytes() == (tmp_path / "serial").read_bytes()
    print(f"killed {kill.pids[0]} on the way; {sum(ran.values())} runs of 24 cells, again: {again}; all results equal")


@pytest.fixture
def dask():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_worker_of_dask_is_killed(dask, tmp_path):
    check_kill(dask.get_executor(), tmp_path)


def test_dask_runs_what_failed_again(dask, tmp_path):
    cells = cells_of(6, notes=str(tmp_path))
    cells[1]["does"], cells[4]["does"] = "fail twice", "raise"
    with pytest.raises(zoneplug.SweepError) as e:
        zoneplug.sweep(cells, run=moody, executor=dask.get_executor())
    assert [row["error"]["attempts"] for row in e.value.failures] == [3]
    assert [row for row in e.value.results if "result" in row] == expected(cells[:4] + cells[5:])


@pytest.mark.full
def test_a_cell_that_kills_workers_of_dask_is_named(dask):
    import dask as settings

    cells = cells_of(8)
    cells[3]["does"] = "die"
    with settings.config.set({"distributed.scheduler.allowed-failures": 0}):
        dask.cluster.scheduler.allowed_failures = 0
        with pytest.raises(zoneplug.SweepError) as e:
            zoneplug.sweep(cells, run=moody, executor=dask.get_executor(), retries=1, in_flight=2)
    named = {row["cell"]["n"]: row["error"]["type"] for row in e.value.failures}
    assert named.get(3) == "KilledWorker", named


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    # Workers find the functions of the tests.
    paths = {"env_vars": {"PYTHONPATH": TESTS}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", runtime_env=paths)
    yield ray
    ray.shutdown()


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"max_retries": 0}])
def test_a_worker_of_ray_is_killed(ray, tmp_path, options):
    """Either Ray runs the cell again, or with max_retries=0 it says that the worker has died, and the sweep does."""
    check_kill(RayExecutor(**options), tmp_path)


@pytest.mark.full
def test_a_cell_that_kills_workers_of_ray_is_named_and_no_other(ray, tmp_path):
    cells = cells_of(8, notes=str(tmp_path))
    cells[1]["does"], cells[3]["does"], cells[6]["does"] = "fail twice", "die", "raise"
    with pytest.raises(zoneplug.SweepError) as e:
        zoneplug.sweep(cells, run=moody, executor=RayExecutor(max_retries=0))
    named = {row["cell"]["n"]: row["error"]["type"] for row in e.value.failures}
    assert named == {3: "WorkerCrashedError", 6: "ValueError"}
    assert len([row for row in e.value.results if "result" in row]) == 6


@pytest.mark.full
def test_the_executor_for_ray_is_one_of_concurrent_futures(ray):
    with RayExecutor(num_cpus=1) as executor:
        assert list(executor.map(abs, [-1, 2, -3])) == [1, 2, 3]
        failing = executor.submit(int, "x")
        assert isinstance(failing.exception(timeout=60), ValueError)
        slow = [executor.submit(figure, {"n": n, "s": 3}) for n in range(8)]
        executor.shutdown(wait=True, cancel_futures=True)
        assert all(future.done() for future in slow) and sum(future.cancelled() for future in slow) >= 6
    with pytest.raises(RuntimeError):
        executor.submit(abs, -1)


MPI = """
import json
from mpi4py.futures import MPIPoolExecutor
import zoneplug
from sweep_cells import cells_of, figure
if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        print(json.dumps(zoneplug.sweep(cells_of(20, s=0.01), run=figure, executor=executor)))
"""


@pytest.mark.full
def test_mpi_gives_the_same(tmp_path):
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec")
    if not mpiexec:
        pytest.skip("needs mpiexec (openmpi-bin)")
    (tmp_path / "mpi.py").write_text(MPI)
    command = [mpiexec, "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures"]
    environment = os.environ | {"PYTHONPATH": TESTS}
    done = subprocess.run([*command, str(tmp_path / "mpi.py")], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected(cells_of(20, s=0.01))
