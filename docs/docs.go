// Package docs is the pages that the programs show themselves.
package docs

import _ "embed" // the pages are files

// Runbook is runbook.md.
//
//go:embed runbook.md
var Runbook string
