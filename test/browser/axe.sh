#!/usr/bin/env bash
# Prints where axe.min.js of npm's axe-core is, which is fetched once at its pinned version. Fails where there is no npm, or the registry can't be reached.
set -euo pipefail

version=4.14.1
kept=${XDG_CACHE_HOME:-$HOME/.cache}/spillway/axe-core-$version
if [ ! -e "$kept/axe.min.js" ]; then
  fetched=$(mktemp -d)
  trap 'rm -rf "$fetched"' EXIT
  (cd "$fetched" && npm pack --silent "axe-core@$version" >&2 && tar xzf "axe-core-$version.tgz" package/axe.min.js)
  mkdir -p "$kept"
  mv "$fetched/package/axe.min.js" "$kept/"
fi
echo "$kept/axe.min.js"
