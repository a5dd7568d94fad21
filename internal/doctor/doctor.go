// Package doctor checks for problems in Redis, in the configuration, on the way to the gateways, and in the
// stored data. It changes nothing and makes no calls, so it never counts against a gateway's limit.
package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Level is the severity of a check's result.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, but something is unwise or needs an operator
	Fail Level = "fail" // jobs are lost, or not called, or may be
)

// Check is the result of one check. It contains no secret and no payload.
type Check struct {
	// Name is what was checked, such as eviction or admission.
	Name string `json:"check"`
	// Gateway is the gateway concerned; empty for Redis and for the file as a whole.
	Gateway string `json:"gateway,omitempty"`
	Level   Level  `json:"level"`
	// Message says what was found.
	Message string `json:"message"`
	// Hint says what to do; empty only if the level is OK.
	Hint string `json:"hint,omitempty"`
}

// Params say what to check.
type Params struct {
	// Config is the configuration; secrets may be missing.
	Config *config.Config
	// Unset is what is wrong with the gateways' secrets; nil if all are set.
	Unset error
	// Gateways are the gateways to check.
	Gateways []config.Gateway
	// DB is an open Redis. Nil: the configuration's is opened.
	DB *redisdb.DB
	// RedisWait is how long to wait for Redis's first reply. Zero means one try.
	RedisWait time.Duration
	// ReachWithin bounds the connection to one gateway. Zero means 5 s.
	ReachWithin time.Duration
	// Now is the local clock. nil means the system's.
	Now func() time.Time
	// TLS is the TLS configuration for gateways. nil means the system's roots.
	TLS *tls.Config
}

// Report is the results of all checks, in the order in which they were made. docs/cli-json.md documents its
// JSON.
type Report struct {
	// OK says that no check failed.
	OK bool `json:"ok"`
	// Failed and Warned are the numbers of Fail and Warn results.
	Failed int     `json:"failed"`
	Warned int     `json:"warned"`
	Checks []Check `json:"checks"`
	// Away is why Redis could not be checked; nil if it could. All other checks were made all the same.
	Away error `json:"-"`
}

// Run makes every check. Its error is the context's.
func Run(ctx context.Context, p Params) (Report, error) {
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.ReachWithin == 0 {
		p.ReachWithin = 5 * time.Second
	}
	x := &examination{p: p, latency: map[string]time.Duration{}}
	x.secrets()
	x.token()
	x.secretFiles()
	x.sharedAccounts()
	ways := x.reachAll(ctx) // concurrently with Redis
	x.redis(ctx)
	for _, g := range p.Gateways {
		way := <-ways[g.Name]
		x.lint(g, way.took)
		x.add(way.checks...)
	}
	x.OK = x.Failed == 0
	return x.Report, ctx.Err()
}

// token checks the tokens' lengths.
func (x *examination) token() {
	for key, token := range map[string]config.Secret{"token": x.p.Config.Token, "token_previous": x.p.Config.TokenPrevious} {
		if n := len(token.Reveal()); n > 0 && n < config.LeastToken {
			x.add(warn("token", "", config.MakeToken, "%s has fewer than %d bytes and can be guessed; where others can reach the address, run does not start with it", key, config.LeastToken))
		}
	}
}

// examination is one run.
type examination struct {
	Report
	p Params
	// latency is the duration of calls, from the records, by gateway; missing if unknown.
	latency map[string]time.Duration
}

func (x *examination) add(checks ...Check) {
	x.Checks = append(x.Checks, checks...)
	for _, c := range checks {
		switch c.Level {
		case Fail:
			x.Failed++
		case Warn:
			x.Warned++
		case OK:
		}
	}
}

// ok, warn and fail return a check about a gateway, or about none.
func ok(name, gateway, format string, args ...any) Check {
	return Check{Name: name, Gateway: gateway, Level: OK, Message: fmt.Sprintf(format, args...)}
}

func warn(name, gateway, hint, format string, args ...any) Check {
	return Check{Name: name, Gateway: gateway, Level: Warn, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

func fail(name, gateway, hint, format string, args ...any) Check {
	return Check{Name: name, Gateway: gateway, Level: Fail, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// secrets checks that run would find the gateways' variables.
func (x *examination) secrets() {
	if x.p.Unset == nil {
		x.add(ok("secrets", "", "every variable that the gateways need is set"))
		return
	}
	for line := range strings.Lines(x.p.Unset.Error()) {
		hint := `set it where "dispatcher run" is started; this shell may lack what its service has`
		if !strings.Contains(line, "in the environment") {
			hint = `mend it; if a file can't be read, run doctor as the user of "dispatcher run", who may be allowed to`
		}
		x.add(fail("secrets", "", hint, "%s", strings.TrimSpace(line)))
	}
}

// secretFiles names the secret files that any user of this machine can read.
func (x *examination) secretFiles() {
	for _, file := range x.p.Config.SecretFiles {
		if open(file) {
			x.add(warn("secrets", "", "chmod o-r "+file, "everybody on this machine may read the secret in %s", file))
		}
	}
}

// open reports whether everyone can read a file.
func open(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().Perm()&0o004 != 0
}

// wayToRedis checks the protection of a Redis on another machine.
func (x *examination) wayToRedis() {
	way, err := redisdb.WayTo(x.p.Config.Redis.Reveal())
	if err != nil || way.Socket || !slices.ContainsFunc(way.Hosts, func(host string) bool { return !loopback(host) }) {
		return
	}
	if !way.TLS {
		x.add(warn("redis_tls", "", "write rediss://, or tls=true for sentinels and clusters, and let Redis listen with TLS",
			"Redis is reached unencrypted: anyone on the way can read jobs and its password, and change payments"))
	}
	if !way.Password {
		x.add(warn("redis_password", "", "give it a user with the rights in docs/configuration.md, and write redis: ${REDIS_URL} into the file",
			"Redis is reached without a password: anyone who reaches it can send, change and delete payments"))
	}
}

// redis checks Redis and the data stored there. If it is unreachable, the remaining checks are made all the
// same.
func (x *examination) redis(ctx context.Context) {
	if x.p.Config.Redis == redisdb.Embedded {
		x.add(warn("redis", "", "use a Redis of its own for jobs that must not be lost",
			"the embedded Redis keeps everything in memory and is gone with its process"))
		return
	}
	x.wayToRedis()
	x.add(x.lintTLS("", x.p.Config.RedisTLS)...)
	db, err := x.p.DB, error(nil)
	if db == nil {
		if db, err = dispatch.Open(ctx, x.p.Config, x.p.RedisWait); err == nil {
			defer func() { _ = db.Close() }()
		}
	}
	if err == nil {
		err = x.examine(ctx, db)
	}
	if err != nil {
		x.unreachable(err)
	}
}

func (x *examination) examine(ctx context.Context, db *redisdb.DB) error {
	if err := x.servers(ctx, db); err != nil {
		return err
	}
	each, errs := make([]*examination, len(x.p.Gateways)), make([]error, len(x.p.Gateways))
	redisdb.Abreast(ctx, db.Client, len(each), func(c redis.UniversalClient, i int) {
		each[i] = &examination{p: x.p, latency: map[string]time.Duration{}}
		errs[i] = each[i].standing(ctx, c, x.p.Gateways[i])
	})
	for i, one := range each {
		x.add(one.Checks...)
		maps.Copy(x.latency, one.latency)
		if errs[i] != nil {
			return errs[i]
		}
	}
	if len(x.p.Gateways) < len(x.p.Config.Gateways) { // others were not requested
		return nil
	}
	return x.unlisted(ctx, db)
}

// unlisted warns of gateways with jobs that are not configured.
func (x *examination) unlisted(ctx context.Context, db *redisdb.DB) error {
	all, err := desk.UnlistedOf(ctx, db.Client, x.p.Config.Names())
	for _, u := range all {
		x.add(warn("unlisted", u.Gateway, u.Hint(), "%s", u.Text()))
	}
	if err != nil || x.p.Config.DedupeScope == config.DedupeAll {
		return err
	}
	return x.renamed(ctx, db)
}

// renamed warns of gateways that are not configured and whose jobs are over, if a configured one has had no job:
// it may be the new name of one of them, where their ids are unknown.
func (x *examination) renamed(ctx context.Context, db *redisdb.DB) error {
	known, err := desk.New(db.Client, x.p.Config.Gateways).Of(db.Client, x.p.Config.Names()).Known(ctx)
	i := slices.IndexFunc(known, func(k desk.Known) bool { return k.InFile && k.Jobs == 0 && k.Done == 0 && k.Damaged == "" })
	if err != nil || i < 0 {
		return err
	}
	for _, k := range known {
		if !k.InFile && !k.Served && k.Jobs == 0 && k.Done > 0 && k.Moving == "" && k.Damaged == "" {
			x.add(warn("renamed", k.Gateway, fmt.Sprintf("if it was renamed, before a file is enqueued there: dispatcher gateway rename %s %s; if not, nothing", k.Gateway, known[i].Gateway),
				"%s of %s, which the file does not have, were done; at %s, which has had no job, their ids are unknown, and a file that is sent again is paid again",
				job.JobsText(k.Done), k.Gateway, known[i].Gateway))
		}
	}
	return nil
}

func (x *examination) unreachable(err error) {
	err = redisdb.Coded(err)
	e, coded := errors.AsType[*job.Error](err)
	hint := "start it, or check the Redis address, and try again"
	if coded && e.Hint != "" {
		hint = e.Hint
	}
	x.add(fail("redis", "", hint, "%v", err))
	if job.CodeOf(err) == job.CodeUnavailable {
		x.Away = err
	}
}

// fewAlike is the number of similar checks that are shown individually.
const fewAlike = 3

// Shown is a check for people, with the number of other checks of the same name and level, at other gateways,
// that are omitted after it.
type Shown struct {
	Check
	More int
}

// Few keeps the first three checks of each name and level at gateways, so that the checks of thousands of
// gateways do not hide one gateway's. The order stays.
func Few(checks []Check) []Shown {
	type kind struct {
		name  string
		level Level
	}
	seen, last := map[kind]int{}, map[kind]int{}
	var all []Shown
	for _, c := range checks {
		k := kind{c.Name, c.Level}
		if c.Gateway != "" {
			if seen[k]++; seen[k] > fewAlike {
				all[last[k]].More++
				continue
			}
			last[k] = len(all)
		}
		all = append(all, Shown{Check: c})
	}
	return all
}
