#!/bin/sh
# Starts the binary for this processor. A bundle is for one operating system, and may have several binaries.
case "$(uname -m)" in
    x86_64 | amd64) cpu=x64 ;;
    aarch64 | arm64) cpu=arm64 ;;
    *) cpu=$(uname -m) ;;
esac
program="$(dirname "$0")/countersign-$cpu"
if [ ! -x "$program" ]; then
    echo "countersign: this bundle has no binary for $cpu" >&2
    exit 1
fi
# A field that the user has left empty.
if [ -z "$COUNTERSIGN_MANIFEST" ]; then
    unset COUNTERSIGN_MANIFEST
fi
exec "$program" "$@"
