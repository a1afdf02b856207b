#!/bin/sh
# Stands in for QEMU in the tests of `pagefold boot`: says what was recorded, and ends as it is told.
if [ -n "$FAKE_ARGS" ]; then printf '%s\n' "$@" >"$FAKE_ARGS"; fi
cat "$FAKE_OUTPUT"
if [ -n "$FAKE_ERROR" ]; then echo "$FAKE_ERROR" >&2; fi
if [ -n "$FAKE_HANG" ]; then exec sleep 600; fi
exit "$FAKE_STATUS"
