#!/bin/sh
# Replaces QEMU in the tests of `pagefold boot`: prints a recorded log and ends as requested.
if [ -n "$FAKE_ARGS" ]; then printf '%s\n' "$@" >"$FAKE_ARGS"; fi
cat "$FAKE_OUTPUT"
if [ -n "$FAKE_ERROR" ]; then echo "$FAKE_ERROR" >&2; fi
if [ -n "$FAKE_HANG" ]; then exec sleep 600; fi
exit "$FAKE_STATUS"
