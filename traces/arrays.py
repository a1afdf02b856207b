"""Arrays with numpy: SCALE. Sorts, gathers, multiplies matrices, and makes a histogram."""
import sys

import numpy

scale = int(sys.argv[1])
draw = numpy.random.default_rng(1)
values = draw.standard_normal(24_000 * scale)
order = numpy.argsort(values)
steps = numpy.diff(values[order])
counts, _ = numpy.histogram(values, bins=200)
side = 96 * scale
left, right = draw.random((side, side)), draw.random((side, side))
product = left @ right
picked = values[draw.integers(0, len(values), len(values) // 2)]
print(steps.max(), counts.max(), numpy.trace(product), picked.sum())
