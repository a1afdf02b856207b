#!/bin/sh
# Makes the traces of this folder again: traces/make.sh [sqlite] [cc1] [redis]; without a name, all three.
#
# Needs (Debian): apt-get install qemu-user sqlite3 gcc redis-server redis-tools
# The server listens on 127.0.0.1 only, on port $PORT, and is stopped at the end. RECORD can name another recorder.
set -eu
cd "$(dirname "$0")"
here=$PWD
RECORD=${RECORD:-cargo run --release --quiet --manifest-path $here/../Cargo.toml --bin pagefold -- record}
PORT=${PORT:-17399}
work=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT INT TERM

sqlite() {
    cp sqlite.sql "$work"
    (cd "$work" && $RECORD -o "$here/sqlite.pft" -- sqlite3 shop.db ".read sqlite.sql" >/dev/null)
}

cc1() {
    awk -v types=740 -v functions=5 -f cc1.awk >"$work/project.c"
    (cd "$work" && $RECORD -o "$here/cc1.pft" -- "$(gcc -print-prog-name=cc1)" -quiet -O0 project.c -o project.s)
}

ask() {
    redis-cli -h 127.0.0.1 -p "$PORT" "$@"
}

load() {
    redis-benchmark -h 127.0.0.1 -p "$PORT" -q -c 8 "$@" >/dev/null
}

redis() {
    (cd "$work" && exec $RECORD -o "$here/redis.pft" -- redis-server --bind 127.0.0.1 --port "$PORT" \
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

for trace in ${*:-sqlite cc1 redis}; do
    $trace
done
