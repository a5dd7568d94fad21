#!/usr/bin/env bash
# The image without a container engine: the Dockerfile's own build line, over the files that .dockerignore lets through, then its programs in a root of
# their own: read-only, nothing else in it, no privilege, user 65532. One job goes from enqueue to done in there. Needs root (mounts) and redis-server.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
started=()
tidy() {
  for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap tidy EXIT
fail() { echo "image: $*" >&2; tail -n 20 "$work"/*.log >&2 2>/dev/null || true; exit 1; }

# The build stage.
mkdir -p "$work/src" "$work/root"/{etc/ssl/certs,etc/spillway,var/lib/spillway,tmp,proc}
git ls-files -co --exclude-standard go.mod go.sum cmd internal | grep -v -e _test.go -e /testdata/ | tar c -T - | tar x -C "$work/src"
line=$(sed -n 's/^RUN \(CGO_ENABLED=0 go build .*\)$/\1/p' Dockerfile)
[ -n "$line" ] || fail "the Dockerfile has no build line"
grep -q '^ARG VERSION=' Dockerfile || fail "the Dockerfile takes no version"
(cd "$work/src" && VERSION=v9.9.9-image && eval "${line//\/out\//$work\/root\/}" && rmdir "$work/root/state")

# The image, as its COPY lines make it, and what a deployment mounts into it.
for file in dispatcher enqueue; do grep -q "^COPY --from=build /out/$file /$file$" Dockerfile || fail "the Dockerfile does not ship $file"; done
cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/" 2>/dev/null || : > "$work/root/etc/ssl/certs/ca-certificates.crt"
user=$(sed -n 's/^USER //p' Dockerfile)
state=$(sed -n 's/^ENV STATE_DIRECTORY=//p' Dockerfile)
port() { python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }
redis=$(port) provider=$(port) listen=$(port)
cat > "$work/root/etc/spillway/dispatcher.yaml" <<YAML
redis: redis://127.0.0.1:$redis/0
listen: 0.0.0.0:$listen
token: \${DISPATCHER_TOKEN}
gateways:
  sandbox:
    request: {url: "http://127.0.0.1:$provider/v1/charges"}
    leak: {limits: [100/s]}
YAML

for program in dispatcher enqueue; do
  "$work/root/$program" --version | grep -q 'version v9.9.9-image,' || fail "$program does not say the version that it was built as"
done

# jail runs one of the programs as a container with read_only, cap_drop: [ALL] and no-new-privileges would.
jail() {
  exec unshare --mount --propagation private bash -c '
    root=$1 user=$2 state=$3; shift 3
    mount --bind "$root" "$root" && mount -o remount,ro,bind "$root" "$root"
    mount -t tmpfs -o size=64m,mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs -o "size=1m,mode=0700,uid=${user%:*},gid=${user#*:}" tmpfs "$root$state"
    mount -t proc proc "$root/proc"
    exec env -i STATE_DIRECTORY="$state" DISPATCHER_TOKEN=a-token-for-the-image DISPATCHER_CONFIG=/etc/spillway/dispatcher.yaml \
      setpriv --no-new-privs /usr/sbin/chroot --userspec="$user" --groups="" "$root" "$@"' jail "$work/root" "$user" "$state" "$@"
}
begin() { local log=$1; shift; ("$@") > "$work/$log.log" 2>&1 & started+=($!); last=$!; }
await() { local what=$1; shift; for _ in $(seq 150); do "$@" > /dev/null 2>&1 && return; sleep 0.2; done; fail "$what"; }

begin redis redis-server --port "$redis" --dir "$work" --appendonly yes --save ""
await "redis-server does not answer" redis-cli -p "$redis" ping
begin provider jail /dispatcher provider --listen "127.0.0.1:$provider" --limit 100/s
begin run jail /dispatcher run
run=$last
asks() { (jail /dispatcher healthcheck --ready); }
await "the dispatcher is not ready" asks

status=/proc/$run/status
grep -q "^Uid:.${user%:*}.${user%:*}.${user%:*}.${user%:*}$" "$status" || fail "it does not run as $user: $(grep ^Uid "$status")"
grep -q '^CapEff:.0*$' "$status" || fail "it has capabilities: $(grep ^CapEff "$status")"
grep -q '^NoNewPrivs:.1$' "$status" || fail "it may gain privileges"
awk '$5 == "/" && $6 ~ /^ro/ {found = 1} END {exit !found}' "/proc/$run/mountinfo" || fail "its root can be written to"

printf '{"id":"one","payload":{"amount":100}}\n' > "$work/job.ndjson"
(jail /enqueue -g sandbox -f - -q < "$work/job.ndjson") > "$work/enqueue.log" 2>&1 || fail "enqueue"
finished() { (jail /dispatcher status -o json) | grep -q '"done":1'; }
await "the job is not done" finished
kill -TERM "$run"
wait "$run" || fail "the dispatcher ended with $?"
echo "image: built, and a job is done in it as $user on a read-only root, without capabilities"
