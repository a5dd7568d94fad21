#!/usr/bin/env bash
# Renames the Go module, here and in the modules beside it, and everything that names it: imports, tests that read them, the Dockerfile's linker flag.
set -euo pipefail
cd "$(dirname "$0")/.."

new=$1 old=$(go list -m)
for dir in . bench test/browser test/manifests; do
  (
    cd "$dir"
    from=$(go list -m)
    go mod edit -module "$new${from#"$old"}"
    if go mod edit -json | grep -q "\"Path\": \"$old\""; then
      to=$(go mod edit -json | sed -n '/"Replace"/,$s/.*"Path": "\(\.\.[^"]*\)".*/\1/p' | head -n 1)
      go mod edit -dropreplace "$old" -droprequire "$old" -replace "$new=$to" -require "$new@v0.0.0-00010101000000-000000000000"
    fi
  )
done
git ls-files -z '*.go' Dockerfile | xargs -0 sed -i -E "s#(^|[^/A-Za-z0-9_.-])${old//./\\.}/(internal|cmd|client|docs|test|bench)(/|\")#\1$new/\2\3#g"
sed -i "s#^const module = \"$old/\"#const module = \"$new/\"#" test/imports_test.go
gofmt -l -w bench client cmd internal test
echo "the module is $new now: go build ./... and make test tell whether all of it moved"
