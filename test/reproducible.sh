#!/usr/bin/env bash
# Both programs built twice from what is committed, in two clones at paths of different lengths: as always, and in other surroundings with an
# empty build cache, so that nothing of the first build is taken over. They must be the same to the byte: so anybody can build a release anew and compare it with what was published.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The settings of go itself belong to what a build is made of, wherever the home directory is: flags, the toolchain, the proxy.
GOMODCACHE=$(go env GOMODCACHE) GOENV=$(go env GOENV)
export GOMODCACHE GOENV

commit=$(git rev-parse HEAD)

# build DIR [NAME=VALUE…] clones into DIR and builds there.
build() {
  local at=$work/$1
  shift
  git clone -q "$PWD" "$at"
  git -C "$at" -c advice.detachedHead=false checkout -q "$commit"
  env -C "$at" "$@" make --no-print-directory build
}
build a
build another/place/with-a-longer-name GOCACHE="$work/cache" HOME="$work/home" TZ=Asia/Tokyo LC_ALL=C USER=somebody

failed=0
for program in dispatcher enqueue; do
  sums=$(cd "$work" && sha256sum a/bin/$program another/place/with-a-longer-name/bin/$program)
  if [ "$(cut -d' ' -f1 <<<"$sums" | sort -u | wc -l)" -ne 1 ]; then
    echo "reproducible: $program is not the same twice:"
    echo "$sums"
    diff <(go version -m "$work/a/bin/$program") <(go version -m "$work/another/place/with-a-longer-name/bin/$program") || true
    failed=1
    continue
  fi
  echo "$(cut -d' ' -f1 <<<"$sums" | head -n 1)  $program"
done
[ "$failed" -eq 0 ] || exit 1
echo "reproducible: both programs are the same to the byte, at ${commit:0:12}"
