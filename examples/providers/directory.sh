#!/bin/sh
# A provider in shell whose cloud is a folder: a host is a folder in $MACHINES, a host that joined has a file `cluster`.
#
#   bigfleet provider exec --command "sh examples/providers/directory.sh"
#
# What each operation needs also stands in the environment, so that a script without a JSON parser can be a provider; the
# blob comes in the request only.
set -eu
umask 077
root="${MACHINES:-${TMPDIR:-/tmp}/bigfleet-machines-$(id -u)}"
mkdir -p "$root"

describe() {
    count="${BIGFLEET_SEED_COUNT:-0}"
    [ "$count" -gt 0 ] || count=32
    printf '{"can_delete":true,"resumes":true,"machines":['
    n=0
    comma=''
    while [ "$n" -lt "$count" ]; do
        host=null
        [ ! -d "$root/slot-$n" ] || host="{\"reference\":\"folder-$n\"}"
        printf '%s{"id":"slot-%d","host":%s,"instance_type":"folder","zone":"here","capacity_type":"on-demand",' "$comma" "$n" "$host"
        printf '"price_per_hour":0.1,"resources":{"cpu":"1","memory":"2Gi"},"allocatable":{"cpu":"4","memory":"8Gi"}}'
        comma=','
        n=$((n + 1))
    done
    printf ']}\n'
}

machine="$root/${BIGFLEET_MACHINE_ID:-}"
case "$BIGFLEET_OPERATION" in
describe)
    describe
    ;;
create)
    # Made once, however often it is asked for.
    mkdir -p "$machine"
    printf '{"host":{"reference":"folder-%s"}}\n' "${BIGFLEET_MACHINE_ID#slot-}"
    ;;
configure)
    # A real host would run this at its boot; it is a secret, so it goes into a file that nobody else reads, and goes.
    sed -n 's/.*"blob_base64":"\([^"]*\)".*/\1/p' | base64 -d >"$machine/join"
    printf '%s\n' "$BIGFLEET_CLUSTER" >"$machine/cluster"
    rm -f "$machine/join"
    echo '{}'
    ;;
drain)
    rm -f "$machine/cluster" "$machine/join"
    echo '{}'
    ;;
delete)
    rm -rf "$machine"
    echo '{}'
    ;;
*)
    printf '{"error":"operation %s is not known here"}\n' "$BIGFLEET_OPERATION"
    ;;
esac
