"""The largest difference of values, for tests."""

import math


def find_largest(differences, default=math.inf):
    """Returns the largest; infinity if one is NaN, which max() passes over, or if there are none."""
    values = list(differences)
    return max(values, default=default) if all(map(math.isfinite, values)) else math.inf
