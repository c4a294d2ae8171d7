"""Privacy that is counted.

| module | what it is for |
|---|---|
| `releases` | what a node released, as frozen values: `Gaussian`, `Laplace`, `Zcdp`, `Sampled` |
| `accounting` | `record(...)` and `History`: zCDP totals, epsilon and delta, with the method that was used |
| `gaussian` | the exact arithmetic of Gaussian noise, NumPy only and vectorised: `epsilon_of`, `mu_of` |
| `calibration` | from a budget back to the noise, per client; how often a client takes part |
| `ledger` | `Ledger`, `Terms`, budgets: nothing is shared before `charge` has returned |
| `journal` | `open_ledger`: the same, on disk, through crashes |
| `account` | `scale_of`: paid for, inside node functions; what `accountant` reads as a ledger |
| `noise` | schedules, and `disturb`: keyed in a simulation, secure on a device |
| `correlated` | noise that cancels in sums over rounds: matrix factorisations |
| `secure_aggregation` | a sum whose parts nobody sees: keys, pads, masks; `coding` takes them off, whoever drops |
| `discrete` | integers with discrete Gaussian noise, which add up to the noise of one |
| `bounding` | clipping and projections, and each loss's gradient bound under them |
| `audit` | a lower bound on epsilon from releases alone, of many runs; `one_run` of one |

Importing any of them takes NumPy alone; SciPy, dp-accounting and opendp are imported where they are used: a
device with a budget and Gaussian noise needs none of the first two.
"""
