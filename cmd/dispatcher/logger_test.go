package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"spillway/internal/cli"
)

func TestTheLogIsTextOrJSON(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"text": `msg="a line" job=inv-1`, "json": `"msg":"a line","job":"inv-1"`} {
		var out bytes.Buffer
		p := &program{Streams: cli.Streams{Err: &out}}
		log := p.logger("warn", format)
		log.Warn("a line", "job", "inv-1")
		log.Info("not at this level")
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) || (format == "json") != json.Valid(out.Bytes()) {
			t.Errorf("%s: %s", format, got)
		}
	}
}
