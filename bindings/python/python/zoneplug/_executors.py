"""The executors of sweeps: the one that is used if none is given, and how one is lost and made again."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Executor, Future, InvalidStateError, ProcessPoolExecutor

#: How many calls an executor has at a time whose number of workers is unknown.
_UNKNOWN = 1024


class Pool:
    """What runs the calls of a sweep: an executor of the caller, or executors that are made here, one after the other."""

    def __init__(self, executor, calls):
        """`executor`: one, a callable that makes one, or None for processes, at most as many as there are `calls`."""
        own = hasattr(executor, "submit")
        self._make = None if own else executor or (lambda: _processes(calls))
        self._executor = executor if own else None
        #: Grows with each executor that was lost.
        self.generation = 0

    @property
    def can_renew(self):
        return self._make is not None

    def executor(self):
        if self._executor is None:
            self._executor = self._make()
        return self._executor

    def width(self):
        """How many calls it should have at a time, so that no worker waits for the next one."""
        executor = self.executor()
        workers = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)
        return 2 * workers if workers else _UNKNOWN

    def lose(self):
        """The executor is broken: the next call gets a new one."""
        self.generation += 1
        if self.can_renew:
            broken, self._executor = self._executor, None
            broken.shutdown(wait=False)

    def close(self):
        """All calls have ended."""
        if self.can_renew and self._executor is not None:
            self._executor.shutdown(wait=True)

    def abandon(self, calls):
        """Nothing more is wanted of these calls. Processes that were made here are ended: a cell has no other effect."""
        if self.can_renew and isinstance(self._executor, ProcessPoolExecutor):
            # The thread of the pool fails if it finds a call that another thread has cancelled, or if the interpreter ends
            # while it closes its pipes. So it cancels the calls itself, and has ended when this returns.
            for process in list((self._executor._processes or {}).values()):
                process.terminate()
            self._executor.shutdown(wait=True, cancel_futures=True)
            return
        for call in calls:
            call.cancel()
        if self.can_renew and self._executor is not None:
            self._executor.shutdown(wait=False)


def _processes(calls):
    return ProcessPoolExecutor(max(1, min(len(os.sched_getaffinity(0)), calls)), initializer=_in_worker)


def _in_worker():
    """In a worker process: it ends with the process that sweeps, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end():
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


class SerialExecutor(Executor):
    """Runs each call in `submit`, in the thread that submits: for debuggers, and to see where an exception is from."""

    _max_workers = 1

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as e:
            future.set_exception(e)
        return future


class RayExecutor(Executor):
    """Runs calls as Ray tasks, in the cluster that the process is connected to.

    `ray.init(...)` before says which one; otherwise Ray goes by its environment, or starts one on this machine.
    `options` are those of `ray.remote`: `num_cpus`, `max_retries`, `runtime_env` and others.
    """

    def __init__(self, **options):
        import ray  # type: ignore[import-not-found, unused-ignore]

        if not ray.is_initialized():
            ray.init()
        self._cancel = ray.cancel
        self._task = ray.remote(**options)(_call) if options else ray.remote(_call)
        self._lock = threading.Lock()
        self._calls = {}
        self._ended = False

    def submit(self, fn, /, *args, **kwargs):
        with self._lock:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            ref = self._task.remote(fn, args, kwargs)
            future = _RayFuture(ref, self._cancel)
            self._calls[future] = None
        future.add_done_callback(self._forget)
        ref.future().add_done_callback(future._take)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        with self._lock:
            self._ended = True
            calls = list(self._calls)
        if cancel_futures:
            for future in calls:
                future.cancel()
        if wait:
            for future in calls:
                if not future.cancelled():
                    future.exception()

    def _forget(self, future):
        with self._lock:
            self._calls.pop(future, None)


def _call(fn, args, kwargs):
    return fn(*args, **kwargs)


class _RayFuture(Future):
    def __init__(self, ref, cancel):
        super().__init__()
        self._ref, self._cancel = ref, cancel

    def cancel(self):
        if not super().cancel():
            return False
        self._cancel(self._ref)
        return True

    def _take(self, answer):
        try:
            if answer.exception() is None:
                self.set_result(answer.result())
            else:
                self.set_exception(answer.exception())
        except InvalidStateError:
            pass  # Cancelled meanwhile.
