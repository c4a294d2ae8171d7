"""What all tests share: kernels are kept between runs, and bounds are checked."""

import os

os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ARCHIPEL_BOUNDSCHECK", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
