"""How far a sweep is: a bar on a terminal, nothing in a pipe, or a call."""

import shutil
import sys
import time


def progress_of(wanted, done, total):
    """`wanted`: a callable of (done, total, failed), False for nothing, None for a bar if stderr is a terminal."""
    if callable(wanted):
        return _Call(wanted, done, total)
    if wanted is False or not sys.stderr.isatty():
        return _Call(lambda *_: None, done, total)
    try:
        from tqdm import tqdm  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return _Line(done, total)
    return _Tqdm(tqdm, done, total)


class _Call:
    def __init__(self, call, done, total):
        self._call, self._done, self._total, self._failed = call, done, total, 0
        call(done, total, 0)

    def cell(self, failed):
        """One more cell has its result, or was given up."""
        self._done += 1
        self._failed += failed
        self._call(self._done, self._total, self._failed)

    def close(self):
        pass


class _Line(_Call):
    """A line on stderr, written again a few times a second."""

    def __init__(self, done, total):
        self._begin, self._before, self._next = time.monotonic(), done, 0.0
        super().__init__(self._show, done, total)

    def _show(self, done, total, failed):
        now = time.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + 0.2
        fresh, elapsed = done - self._before, now - self._begin
        text = f"  {done}/{total} cells  {_clock(elapsed)}"
        if fresh:
            text += f"  {_clock(elapsed / fresh * (total - done))} left"
        if failed:
            text += f"  {failed} failed"
        sys.stderr.write("\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()

    def close(self):
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class _Tqdm(_Call):
    def __init__(self, tqdm, done, total):
        self._bar = tqdm(total=total, initial=done, unit="cell", file=sys.stderr, dynamic_ncols=True)
        super().__init__(self._show, done, total)

    def _show(self, done, _total, failed):
        if failed:
            self._bar.set_postfix(failed=failed, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self):
        self._bar.close()


def _clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
