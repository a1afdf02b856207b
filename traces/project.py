"""A project in C for make: FOLDER N. N files of code, an archive, and a program that uses it."""
import os
import sys

folder, count = sys.argv[1], int(sys.argv[2])
os.makedirs(folder, exist_ok=True)


def write(name, text):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


names = [f"part{at}" for at in range(count)]
write("parts.h", "".join(f"int {name}(int);\n" for name in names))
for at, name in enumerate(names):
    body = "".join(f"static int f{f}(int x) {{ return x * {f + at} + (x >> {f % 7}); }}\n" for f in range(6))
    calls = "".join(f"    x = f{f}(x);\n" for f in range(6))
    write(f"{name}.c", f'#include "parts.h"\n{body}int {name}(int x)\n{{\n{calls}    return x;\n}}\n')
calls = "".join(f"    x += {name}(x);\n" for name in names)
write("main.c", f'#include "parts.h"\nint main(int x, char **v)\n{{\n    (void)v;\n{calls}    return x == 0;\n}}\n')
objects = " ".join(f"{name}.o" for name in names)
write(
    "Makefile",
    f"CFLAGS = -O1\n\nprogram: main.o parts.a\n\t$(CC) -o $@ main.o parts.a\n\nparts.a: {objects}\n\tar rcs $@ {objects}\n\n"
    f"main.o {objects}: parts.h\n",
)
