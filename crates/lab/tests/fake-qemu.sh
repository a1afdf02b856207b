#!/bin/sh
# Replaces QEMU in the tests of `pagefold boot`: prints a recorded log and ends as requested.
if [ "$*" = --version ]; then echo "QEMU emulator version ${FAKE_VERSION:-10.0.2} (fake)"; exit; fi
if [ -n "$FAKE_ARGS" ]; then printf '%s\n' "$@" >"$FAKE_ARGS"; fi
starts=$(cat "$FAKE_ARGS.starts" 2>/dev/null || echo 0)
if [ "$starts" -lt "${FAKE_PANICS:-0}" ]; then
    echo $((starts + 1)) >"$FAKE_ARGS.starts"
    echo "[    1.0] Kernel panic - not syncing: Fatal exception in interrupt"
    exit 0
fi
cat "$FAKE_OUTPUT"
if [ -n "$FAKE_ERROR" ]; then echo "$FAKE_ERROR" >&2; fi
if [ -n "$FAKE_HANG" ]; then exec sleep 600; fi
exit "$FAKE_STATUS"
