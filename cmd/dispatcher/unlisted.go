package main

import (
	"context"
	"time"

	"spillway/internal/desk"
	"spillway/internal/redisdb"
)

// remarkUnlisted lists them, and what to do.
func (p *program) remarkUnlisted(before string, all []desk.Unlisted) {
	for _, u := range all {
		p.remark("%s%s\nhint: %s", before, u.Text(), u.Hint())
	}
}

// unlistedEvery is how often a running dispatcher looks for gateways with jobs that are not configured.
const unlistedEvery = time.Hour

// nameUnlisted logs them, and registers the served gateways again, because Redis may have lost the register.
func (s served) nameUnlisted(ctx context.Context) {
	serving, err := s.choose(s.file.Load())
	if err != nil {
		s.notNamed(ctx, err)
		return
	}
	for _, g := range serving {
		if err := redisdb.Register(ctx, s.db.Client, g.Name); err != nil {
			s.notNamed(ctx, err)
			return
		}
	}
	all, err := desk.UnlistedOf(ctx, s.db.Client, s.file.Load().Names())
	if err != nil {
		s.notNamed(ctx, err)
	}
	for _, u := range all {
		s.log.Warn("jobs of a gateway that the file does not have: "+u.Text(), "gateway", u.Gateway, "jobs", u.Jobs, "money", u.Money(), "hint", u.Hint())
	}
}

func (s served) notNamed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.log.Warn("not looked for gateways that the file does not have", "error", err)
	}
}
