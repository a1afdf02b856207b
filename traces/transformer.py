"""The arithmetic of a language model that runs on a CPU, with random weights.

transformer.py make FILE SCALE writes weights; transformer.py run FILE N maps them and draws N words. Each word reads all
weights once, and the keys and values of all words before: that is what the memory of such a model sees.
"""
import sys

import numpy

WIDTH, LAYERS, WORDS, HEADS = 192, 4, 2048, 6
# Numbers before the weights, which keep these aligned.
HEAD = 1024


def shapes(width):
    yield (WORDS, width)
    for _ in range(LAYERS):
        yield from [(width, width)] * 4
        yield from [(width, 4 * width), (4 * width, width)]


def normal(x):
    return x / numpy.sqrt((x * x).mean() + 1e-5)


def soft(x):
    e = numpy.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def run(path, count):
    flat = numpy.memmap(path, dtype=numpy.float32, mode="r")
    width = int(flat[0])
    parts, at = [], HEAD
    for shape in shapes(width):
        size = shape[0] * shape[1]
        parts.append(flat[at : at + size].reshape(shape))
        at += size
    words, keys, values, told = parts[0], [[] for _ in range(LAYERS)], [[] for _ in range(LAYERS)], [1]
    for _ in range(count):
        x = words[told[-1]]
        for layer in range(LAYERS):
            q, k, v, o, up, down = parts[1 + 6 * layer : 7 + 6 * layer]
            y = normal(x)
            keys[layer].append((y @ k).reshape(HEADS, -1))
            values[layer].append((y @ v).reshape(HEADS, -1))
            asked = (y @ q).reshape(HEADS, -1)
            weight = soft(numpy.einsum("hd,thd->ht", asked, numpy.array(keys[layer])) / numpy.sqrt(width / HEADS))
            x = x + numpy.einsum("ht,thd->hd", weight, numpy.array(values[layer])).reshape(-1) @ o
            y = normal(x) @ up
            # As a mask: QEMU 7.2 runs numpy.maximum into a fault.
            x = x + (y * (y > 0)) @ down
        fit = words @ normal(x)
        fit[told] = -numpy.inf
        told.append(int(fit.argmax()))
    print(told)


if sys.argv[1] == "make":
    width = WIDTH * int(sys.argv[3])
    draw = numpy.random.default_rng(1)
    with open(sys.argv[2], "wb") as out:
        out.write(numpy.full(HEAD, width, dtype=numpy.float32).tobytes())
        for shape in shapes(width):
            out.write((draw.standard_normal(shape, dtype=numpy.float32) / numpy.sqrt(width)).tobytes())
else:
    run(sys.argv[2], int(sys.argv[3]))
