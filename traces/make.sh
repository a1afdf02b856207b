#!/bin/sh
# Makes the traces of this folder again: traces/make.sh [NAME...]; without a name, all of them. SCALE=N makes those that
# come after the first three about N times as long and, where the program keeps its data, as large. OUT is the folder
# that they go to.
#
# Needs (Debian): apt-get install qemu-user sqlite3 gcc redis-server redis-tools make postgresql memcached
# openjdk-17-jdk-headless nodejs python3 python3-numpy xz-utils
# Scripts are run from a new folder and under relative names, so that a trace has no path of the computer that made it.
# The servers listen on 127.0.0.1 only, on port $PORT, and are stopped at the end. RECORD can name another recorder.
set -eu
cd "$(dirname "$0")"
here=$PWD
RECORD=${RECORD:-cargo run --release --quiet --manifest-path $here/../Cargo.toml --bin pagefold -- record}
PORT=${PORT:-17399}
SCALE=${SCALE:-1}
OUT=${OUT:-$here}
PYTHON=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT INT TERM

sqlite() {
    cp sqlite.sql "$work"
    (cd "$work" && $RECORD -o "$OUT/sqlite.pft" -- sqlite3 shop.db ".read sqlite.sql" >/dev/null)
}

cc1() {
    awk -v types=740 -v functions=5 -f cc1.awk >"$work/project.c"
    (cd "$work" && $RECORD -o "$OUT/cc1.pft" -- "$(gcc -print-prog-name=cc1)" -quiet -O0 project.c -o project.s)
}

ask() {
    redis-cli -h 127.0.0.1 -p "$PORT" "$@"
}

load() {
    redis-benchmark -h 127.0.0.1 -p "$PORT" -q -c 8 "$@" >/dev/null
}

redis() {
    (cd "$work" && exec $RECORD -o "$OUT/redis.pft" -- redis-server --bind 127.0.0.1 --port "$PORT" \
        --dir . --save "" --appendonly no --io-threads 2 --daemonize no --rdbcompression no --hz 1 >"$work/redis.log" 2>&1) &
    server=$!
    tries=0
    until ask ping >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { cat "$work/redis.log" >&2; exit 1; }
        sleep 0.2
    done
    load -n 16000 -r 16000 -d 1500 -P 16 -t set
    load -n 9000 -r 2000 -P 16 -t get
    ask bgsave >/dev/null
    load -n 6000 -r 16000 -d 1500 -P 16 -t set
    load -n 2000 -r 2000 -P 8 -t lpush
    load -n 9000 -r 16000 -P 16 -t get
    # The child must have written its file before the server is told to stop.
    tries=0
    until ask info persistence | grep -q 'rdb_bgsave_in_progress:0'; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || exit 1
        sleep 0.2
    done
    ask shutdown nosave || true
    wait "$server" || { cat "$work/redis.log" >&2; exit 1; }
    tail -n 1 "$work/redis.log" >&2
    server=
}

postgresql() {
    bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
    mkdir "$work/data"
    chmod 755 "$work"
    # The server refuses to run as root.
    as=
    if [ "$(id -u)" = 0 ]; then
        chown postgres "$work/data"
        as="setpriv --reuid=postgres --regid=postgres --clear-groups"
    fi
    $as "$bin/initdb" -D "$work/data/db" -U postgres --no-sync >"$work/log" 2>&1
    # In single-user mode: of the other, QEMU 7.2 runs the forked processes into a fault.
    sed "s/:scale/$SCALE/; s/;\$/;\n/" postgresql.sql >"$work/load.sql"
    (cd "$work/data" && TMPDIR=$work/data $as $RECORD --after 60 -o out.pft -- "$bin/postgres" --single -j -D db \
        -c shared_buffers=2MB -c dynamic_shared_memory_type=mmap -c fsync=off -c jit=off postgres \
        <"$work/load.sql" >/dev/null)
    mv "$work/data/out.pft" "$OUT/postgresql.pft"
}

memcached() {
    (cd "$work" && exec $RECORD -o "$OUT/memcached.pft" -- memcached -u "$(id -un)" -l 127.0.0.1 -p "$PORT" -U 0 -m $((8 * SCALE)) \
        -t 2 -A >"$work/log" 2>&1) &
    server=$!
    "$PYTHON" "$here/memcached.py" "$PORT" $((12000 * SCALE))
    wait "$server" || { cat "$work/log" >&2; exit 1; }
    tail -n 1 "$work/log" >&2
    server=
}

jvm() {
    javac -d "$work" Words.java
    (cd "$work" && $RECORD --after 150 -o "$OUT/jvm.pft" -- java -Xms16m -Xmx$((16 * SCALE))m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp . \
        Words $((SCALE * 20000)))
}

node() {
    cp words.js "$work"
    (cd "$work" && $RECORD --after 350 -o "$OUT/node.pft" -- node --max-old-space-size=$((32 * SCALE)) words.js \
        $((SCALE * 10000)))
}

numpy() {
    cp arrays.py "$work"
    (cd "$work" && OPENBLAS_NUM_THREADS=1 $RECORD --after 200 -o "$OUT/numpy.pft" -- "$PYTHON" arrays.py "$SCALE")
}

transformer() {
    cp transformer.py "$work"
    "$PYTHON" transformer.py make "$work/weights" "$SCALE"
    (cd "$work" && OPENBLAS_NUM_THREADS=1 $RECORD --after 200 -o "$OUT/transformer.pft" -- "$PYTHON" transformer.py run weights \
        $((SCALE * 6)))
}

compile() {
    "$PYTHON" "$here/project.py" "$work/project" $((SCALE * 3))
    (cd "$work/project" && $RECORD -o "$OUT/compile.pft" -- make -j 2 >/dev/null)
}

pack() {
    "$PYTHON" "$here/project.py" "$work/project" $((SCALE * 500))
    (cd "$work" && $RECORD -o "$OUT/pack.pft" -- sh -c 'tar cf - project | xz -2 | wc -c')
}

for trace in ${*:-sqlite cc1 redis postgresql memcached jvm node numpy transformer compile pack}; do
    $trace
    rm -rf "$work"/*
done
