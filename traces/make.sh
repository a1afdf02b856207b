#!/bin/sh
# Makes the traces of this folder again: traces/make.sh [NAME...]; without a name, all of them. SCALE=N makes those that
# come after the first three about N times as long and, where the program keeps its data, as large. OUT is the folder
# that they go to.
#
# Needs (Debian): apt-get install qemu-user sqlite3 gcc redis-server redis-tools make postgresql mariadb-server memcached
# openjdk-17-jdk-headless nodejs python3 python3-numpy
# The servers listen on 127.0.0.1 only, on port $PORT, and are stopped at the end. Started by root, PostgreSQL and
# MariaDB run as their own users. RECORD can name another recorder.
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

# Run a command as a user if this is root.
as() {
    user=$1
    shift
    if [ "$(id -u)" = 0 ]; then setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; else "$@"; fi
}

# Wait until a command succeeds.
until_ok() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { cat "$work/log" >&2; exit 1; }
        sleep 0.2
    done
}

# The server has been told to end: its recording is done when the recorder is.
ended() {
    wait "$server" || { cat "$work/log" >&2; exit 1; }
    server=
    tail -n 1 "$work/log" >&2
    mv "$work/data/out.pft" "$OUT/$1"
}

postgresql() {
    bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
    mkdir "$work/data"
    chmod 755 "$work"
    if [ "$(id -u)" = 0 ]; then chown postgres "$work/data"; fi
    set -- -D "$work/data/db" -k "$work/data" -p "$PORT" -c listen_addresses=127.0.0.1 -c shared_buffers=8MB \
        -c dynamic_shared_memory_type=mmap -c max_connections=20 -c fsync=off -c jit=off -c autovacuum=off
    as postgres "$bin/initdb" -D "$work/data/db" -U postgres --no-sync >"$work/log"
    as postgres "$bin/postgres" "$@" >>"$work/log" 2>&1 &
    plain=$!
    until_ok "$bin/pg_isready" -h 127.0.0.1 -p "$PORT"
    "$bin/pgbench" -h 127.0.0.1 -p "$PORT" -U postgres -i -q -s "$SCALE" postgres >>"$work/log" 2>&1
    kill -INT $plain
    wait $plain
    (cd "$work/data" && TMPDIR=$work/data as postgres $RECORD -o out.pft -- "$bin/postgres" "$@" >"$work/log" 2>&1) &
    server=$!
    until_ok "$bin/pg_isready" -h 127.0.0.1 -p "$PORT"
    "$bin/pgbench" -h 127.0.0.1 -p "$PORT" -U postgres -n -c 3 -t $((40 * SCALE)) postgres >"$work/load" 2>&1
    kill -INT "$(head -n 1 "$work/data/db/postmaster.pid")"
    ended postgresql.pft
}

mariadb() {
    mkdir "$work/data"
    chmod 755 "$work"
    if [ "$(id -u)" = 0 ]; then chown mysql "$work/data"; fi
    as mysql mariadb-install-db --no-defaults --datadir="$work/data/db" --auth-root-authentication-method=normal \
        --skip-test-db >"$work/log"
    (cd "$work/data" && TMPDIR=$work/data as mysql $RECORD -o out.pft -- mariadbd --no-defaults --datadir="$work/data/db" \
        --socket="$work/data/s" --port="$PORT" --bind-address=127.0.0.1 --innodb-buffer-pool-size=8M \
        --innodb-use-native-aio=0 --innodb-log-file-size=4M --innodb-flush-log-at-trx-commit=2 --skip-log-bin \
        --performance-schema=OFF --key-buffer-size=1M --aria-pagecache-buffer-size=1M >"$work/log" 2>&1) &
    server=$!
    until_ok mariadb-admin --no-defaults -S "$work/data/s" -u root ping
    mariadb-slap --no-defaults -S "$work/data/s" -u root --concurrency=3 --auto-generate-sql \
        --auto-generate-sql-load-type=mixed --auto-generate-sql-add-autoincrement \
        --auto-generate-sql-write-number=$((300 * SCALE)) --number-of-queries=$((300 * SCALE)) >"$work/load"
    mariadb-admin --no-defaults -S "$work/data/s" -u root shutdown
    ended mariadb.pft
}

memcached() {
    mkdir "$work/data"
    (cd "$work/data" && exec $RECORD -o out.pft -- memcached -u "$(id -un)" -l 127.0.0.1 -p "$PORT" -U 0 -m $((8 * SCALE)) \
        -t 2 >"$work/log" 2>&1) &
    server=$!
    "$PYTHON" "$here/memcached.py" "$PORT" $((12000 * SCALE))
    pkill -INT -P "$server" -x memcached || pkill -INT -P "$server" -f 'memcached -u'
    ended memcached.pft
}

jvm() {
    javac -d "$work" Words.java
    (cd "$work" && $RECORD -o "$OUT/jvm.pft" -- java -Xms16m -Xmx$((16 * SCALE))m -XX:+UseSerialGC -Xshare:auto -cp . \
        Words $((SCALE * 30000)))
}

node() {
    (cd "$work" && $RECORD -o "$OUT/node.pft" -- node --max-old-space-size=$((32 * SCALE)) "$here/words.js" \
        $((SCALE * 10000)))
}

numpy() {
    (cd "$work" && OPENBLAS_NUM_THREADS=1 $RECORD -o "$OUT/numpy.pft" -- "$PYTHON" "$here/arrays.py" "$SCALE")
}

transformer() {
    "$PYTHON" "$here/transformer.py" make "$work/weights" "$SCALE"
    (cd "$work" && OPENBLAS_NUM_THREADS=1 $RECORD -o "$OUT/transformer.pft" -- "$PYTHON" "$here/transformer.py" run weights \
        $((SCALE * 6)))
}

compile() {
    "$PYTHON" "$here/project.py" "$work/project" $((SCALE * 3))
    (cd "$work/project" && $RECORD -o "$OUT/make.pft" -- make -j 2 >/dev/null)
}

for trace in ${*:-sqlite cc1 redis postgresql mariadb memcached jvm node numpy transformer compile}; do
    $trace
    rm -rf "$work"/*
done
