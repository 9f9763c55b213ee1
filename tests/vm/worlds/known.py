"""What kernels and tools do wrong by themselves: what a world must not take for a fault of the disk.

Each was seen without zoneplug, on a zoned disk of the kernel's own.
"""

import re

# (name, file system, what is said, kernels it was seen with, what it is and on what else it was seen)
KNOWN = ()


def of(fs, line):
    """The name of the known fault that a line of a guest tells of, or None."""
    return next((name for name, its_fs, said, *_ in KNOWN if its_fs == fs and re.search(said, line)), None)
