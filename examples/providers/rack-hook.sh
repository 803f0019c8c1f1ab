#!/bin/sh
# A hook of examples/providers/rack.yaml: says what it would do, and does nothing.
set -eu
case "$BIGFLEET_OPERATION" in
boot)
    # The bootstrap blob, a secret: hand it to the host, never to a log.
    bytes=$(wc -c)
    what="join $BIGFLEET_CLUSTER with $bytes bytes of user data"
    ;;
*)
    what="$BIGFLEET_OPERATION"
    ;;
esac
[ -z "${RACK_LOG:-}" ] || echo "$BIGFLEET_ADDRESS: $what" >>"$RACK_LOG"
