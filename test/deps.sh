#!/usr/bin/env bash
# Installs what the tests need beyond Go: redis-server, a C compiler for the race detector, PostgreSQL where it can be had, and what is named: a command of its package's name, luacheck, or
# stripe-mock.
set -euo pipefail

stripe_mock=github.com/stripe/stripe-mock@v0.203.0

packages=()
command -v redis-server >/dev/null || packages+=(redis-server)
command -v "${CC:-gcc}" >/dev/null || command -v clang >/dev/null || packages+=(gcc libc6-dev)
for tool in "$@"; do
  if [ "$tool" = stripe-mock ]; then
    go install "$stripe_mock" # into $(go env GOPATH)/bin; nothing is fetched where it is there already
    continue
  fi
  command -v "$tool" >/dev/null || packages+=("${tool/luacheck/lua-check}")
done
# Tests that need a PostgreSQL skip where there is none: not every machine can have one.
optional=()
command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || [ $# -gt 0 ] || optional=(postgresql)
if [ ${#optional[@]} -gt 0 ] && { [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; }; then
  echo "Tests that need PostgreSQL are skipped; sudo apt-get install -y postgresql has them run" >&2
  optional=()
fi
[ ${#packages[@]} -eq 0 ] && [ ${#optional[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "The tests need: ${packages[*]}" >&2
  echo "hint: sudo apt-get install -y ${packages[*]}   (macOS: brew install redis; Fedora: sudo dnf install redis gcc)" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
# The package would start a server of its own on port 6379; the tests start theirs. A policy of the machine's own stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
install() { apt-get install -y -q --no-install-recommends "$@" >&2; }
ensure() { install "$@" || { apt-get update -q >&2 && install "$@"; }; }
[ ${#packages[@]} -eq 0 ] || ensure "${packages[@]}"
[ ${#optional[@]} -eq 0 ] || ensure "${optional[@]}" || echo "SKIP: PostgreSQL can not be installed here; tests that need it are skipped" >&2
