package audit

import (
	"context"
	"fmt"

	"spillway/internal/redisdb"
)

// toldEntries is how many of the latest entries of the outcome feed are compared with the records.
const toldEntries = 500

// told compares the latest outcomes of the feed, if there is one, with the records and with the feed's own count.
func (a *auditor) told(ctx context.Context) error {
	k := a.g.keys
	v, err := toldScript.Run(ctx, a.g.c, []string{k.Outcomes(), k.Feed()}, toldEntries, k.JobPrefix()).StringSlice()
	if err != nil {
		return err
	}
	if len(v) < 2 || len(v)%3 != 2 {
		return redisdb.BadReply("told.lua", v)
	}
	if v[0] != "" && v[0] != v[1] {
		a.fault(Finding{What: Outcomes, Text: fmt.Sprintf("the latest outcome that is kept is number %s, and the feed says that there were %q", v[0], v[1])})
	}
	for i := 2; i < len(v); i += 3 {
		a.fault(Finding{ID: v[i], What: Outcomes, Text: fmt.Sprintf("the outcome feed said last that it is %s, and its record says %s", v[i+1], v[i+2])})
	}
	return nil
}
