#!/usr/bin/env bash
# Known vulnerabilities of what the programs call, by govulncheck ($1: its module and version). Its database is https://vuln.go.dev; where
# that can not be reached, the same entries are taken from the Go module that they are kept in.
set -euo pipefail
cd "$(dirname "$0")/.."

site=https://vuln.go.dev
if curl -fsS -m 10 -o /dev/null "$site/index/modules.json"; then
  exec go run "$1" ./...
fi
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
module=golang.org/x/vulndb
entries=$(cd "$work" && go mod download -json "$module@latest" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
if [ -z "$entries" ]; then
  echo "SKIP: neither $site nor the module $module can be reached from here"
  exit 0
fi
echo "$site can not be reached: the entries are those of ${entries##*/}" >&2
go run "$module/cmd/indexdb@${entries##*@}" -vulns "$entries/data/osv" -out "$work/db"
go run "$1" -db "file://$work/db" ./...
