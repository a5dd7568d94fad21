package record_test

import (
	"strings"

	"spillway/internal/feed"
	"spillway/internal/record"
)

// stands is the job's state, and of a parked one the reason and the moment of parking.
func (l *living) stands() string {
	if l.c.Type(l.ctx, l.keys.Job("j")).Val() != "hash" {
		return ""
	}
	v := l.c.HMGet(l.ctx, l.keys.Job("j"), record.Short("state"), record.Short("reason"), record.Short("parked_at")).Val()
	text := func(i int) string { s, _ := v[i].(string); return s }
	if text(0) != "parked" {
		return text(0)
	}
	return "parked/" + text(1) + "/" + text(2)
}

// live is how many jobs of the batch are live.
func (l *living) live() string { return l.c.HGet(l.ctx, l.keys.Batch("b"), "live").Val() }

// told checks what the feed was told of a script: one outcome if the script parked the job or ended it, and one more if its batch has no live job any more.
func (l *living) told(what, stood, live string) {
	if l.feed == nil {
		return
	}
	var want []string
	stands := l.stands()
	switch state, _, _ := strings.Cut(stands, "/"); {
	case stands == stood:
	case state == "parked", state == "done", state == "discarded":
		want = append(want, strings.Join(strings.Split(stands, "/")[:min(2, strings.Count(stands, "/")+1)], "/"))
	}
	if live != "0" && live != "" && l.live() == "0" {
		want = append(want, feed.BatchDone)
	}
	outcomes, err := l.feed.Read(l.ctx, l.read, 100)
	if err != nil {
		l.t.Errorf("%s: %v", what, err)
	}
	var told []string
	for _, o := range outcomes {
		state := o.State
		if o.Reason != nil {
			state += "/" + string(*o.Reason)
		}
		told = append(told, state)
		if o.State != feed.BatchDone && o.ID != "j" || o.State == feed.BatchDone && o.Batch != "b" {
			l.t.Errorf("%s: the feed was told of %+v", what, o)
		}
		if l.read, err = feed.ParseCursor(o.Cursor); err != nil {
			l.t.Error(err)
		}
	}
	if strings.Join(told, " ") != strings.Join(want, " ") {
		l.t.Errorf("%s: the feed was told %q, want %q", what, told, want)
	}
}
