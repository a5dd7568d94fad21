#!/usr/bin/env bash
# Runs the core of the tests on other servers than this machine's redis-server: those named as arguments, or those that Debian's other suites have. They are unpacked into a directory of
# their own, with the libraries of their suite, and nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# unpacked SUITE PACKAGE PROGRAM prints a command that runs the program of the suite's package.
unpacked() {
  local at="$dir/$1-$2" loader
  mkdir -p "$at/lists/partial" "$at/archives/partial" "$at/root"
  : >"$at/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main" >"$at/sources.list"
  local apt=(apt-get -q -o Dir::Etc::sourcelist="$at/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$at/lists" -o Dir::State::status="$at/status"
    -o Dir::Cache="$at" -o Dir::Cache::archives="$at/archives" -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o APT::Default-Release="$1")
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends --download-only "$2"; } >&2 || return 1
  for deb in "$at"/archives/*.deb; do dpkg-deb -x "$deb" "$at/root" >&2; done
  loader=$(find "$at/root" -name 'ld-linux-*' ! -type d -path '*linux-gnu*' | head -1)
  printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$loader" "$(dirname "$loader"):$at/root/usr/lib/$(basename "$(dirname "$loader")")" "$at/root/usr/bin/$3" >"$at/$3"
  chmod +x "$at/$3"
  echo "$at/$3"
}

# core runs the core of the tests on a server.
core() {
  echo "== $("$1" --version)"
  local bad=0
  SPILLWAY_REDIS_SERVER=$1 go test -count=1 -vet=off -timeout 30m ./internal/redisdb ./internal/record ./internal/bucket ./internal/incarnation ./internal/queue ./cmd/enqueue </dev/null || bad=1
  SPILLWAY_REDIS_SERVER=$1 go test -count=1 -vet=off -timeout 30m ./test/e2e -run 'KilledAllTheTime|EightProcesses|LeastRights|AnOldSnapshot|FailOver|LanesAreSetLive|NewerFormat|BackupIsRestored' </dev/null || bad=1
  return $bad
}

if [ $# -gt 0 ]; then
  for server in "$@"; do core "$server"; done
  exit
fi
failed=0
while read -r suite package program; do
  if server=$(unpacked "$suite" "$package" "$program"); then
    core "$server" || failed=1
  else
    echo "SKIP: $program of Debian's $suite can not be had here"
  fi
done <<'END'
trixie redis-server redis-server
trixie valkey-server valkey-server
END
exit $failed
