"""A trainer and a text server of our own: a tiny GPT on the CPU. Started as programs, imported by nobody."""

import os

# Read by numpy when it is imported: these matrices are too small for threads, and a laptop has other things to do.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
