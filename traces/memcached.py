"""Load for memcached: PORT N. N values of 100 to 1,100 bytes are set, then 3 N keys are read with skew, and it ends."""
import random
import socket
import sys
import time

port, count = int(sys.argv[1]), int(sys.argv[2])
draw = random.Random(1)


def connect():
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.2)
    sys.exit("memcached does not answer")


BATCH = 32
links = [(link, link.makefile("rb")) for link in (connect() for _ in range(4))]
for first in range(0, count, BATCH):
    link, answers = links[first // BATCH % len(links)]
    keys = range(first, min(first + BATCH, count))
    sizes = [draw.randint(100, 1100) for _ in keys]
    link.sendall(b"".join(b"set k%d 0 0 %d\r\n%s\r\n" % (key, size, b"v" * size) for key, size in zip(keys, sizes)))
    for _ in keys:
        answers.readline()
for first in range(0, count * 3, BATCH):
    link, answers = links[first // BATCH % len(links)]
    keys = [min(int(draw.paretovariate(0.5)), count) - 1 for _ in range(BATCH)]
    link.sendall(b"get " + b" ".join(b"k%d" % key for key in keys) + b"\r\n")
    while (line := answers.readline()) != b"END\r\n":
        answers.read(int(line.split()[-1]) + 2)
links[0][0].sendall(b"shutdown\r\n")
