"""What all tests share: kernels are kept between runs, bounds are checked, and drawn examples are the same every time.

With ARCHIPEL_EXPLORE=1 they are drawn anew: a failure that is found so becomes an example of its own.
"""

import os

from hypothesis import settings

os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ARCHIPEL_BOUNDSCHECK", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("same", derandomize=not os.environ.get("ARCHIPEL_EXPLORE"))
settings.load_profile("same")
