// Package redisdb opens the connection to Redis, checks at the start that Redis can keep jobs, distinguishes "not now"
// from "no", and names every key.
package redisdb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options configure a connection to Redis.
type Options struct {
	// PoolSize is the most open connections, to each node of a cluster. Zero means 32. With too few, calls wait for
	// each other; with too many, a managed Redis runs out of clients.
	PoolSize int
	// DialTimeout bounds the setup of one connection. Zero means 5 s.
	DialTimeout time.Duration
	// ReadTimeout bounds the wait for one reply, and likewise one write. Zero means 3 s. After a longer stall it is
	// unknown whether the command has run.
	ReadTimeout time.Duration
	// Wait is how long Open retries while Redis is unreachable. Zero means one try.
	Wait time.Duration
	// Waiting is called once with the error of the first try if Open retries. Nil: not called.
	Waiting func(err error)
	// WaitReplicas is how many replicas must have what is run under Replicated before it is acknowledged. Zero means
	// none. With fewer replicas, such commands fail, although they have run.
	WaitReplicas int
	// TLS is the TLS configuration, if the address uses TLS. Nil means the system's roots, and no client certificate.
	TLS *tls.Config
	// Name is the name of the connections in Redis's CLIENT LIST. Empty means spillway.
	Name string
}

func (o Options) withDefaults() Options {
	if o.PoolSize == 0 {
		o.PoolSize = 32
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 5 * time.Second
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = 3 * time.Second
	}
	if o.Name == "" {
		o.Name = "spillway"
	}
	return o
}

// DB is an open connection to Redis.
type DB struct {
	// Client never resends a command by itself, nor does it retry to connect: after a timeout the first one may have
	// run, and a script that took a slot or accepted a job would do so again. Callers decide what may be repeated.
	Client redis.UniversalClient
	// Embedded says that Redis runs within this process, and its data is lost at the end.
	Embedded bool

	at           *target
	waitReplicas int
	close        func() error
	joining      sync.Once
	joined       redis.UniversalClient // see Together
}

// Open connects to the Redis at rawURL, in one of the configuration's forms, and waits for its first reply. The error
// is an *Error: ErrURL, ErrDenied, or ErrAway once opt.Wait has passed; or ctx's own if that ended first. The driver's
// own log is disabled, because every failure is returned as an error.
func Open(ctx context.Context, rawURL string, opt Options) (*DB, error) {
	at, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if at.scheme == Embedded && opt.WaitReplicas > 0 {
		return nil, usage("the embedded Redis has no replicas to wait for", "take wait_replicas out, or name a Redis server")
	}
	logging.Disable()
	db := connect(at, opt.withDefaults())
	ping := db.Ping
	if opt.Wait > 0 && opt.Waiting != nil {
		ping = telling(db.Ping, opt.Waiting)
	}
	if err := Patiently(ctx, opt.Wait, ping); err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

func connect(at *target, opt Options) *DB {
	if at.scheme == Embedded {
		return embed(at, opt)
	}
	o := universal(at, opt)
	db := &DB{at: at, waitReplicas: opt.WaitReplicas}
	switch at.scheme {
	case "redis-cluster":
		o.Dialer = careful(o.Dialer)
		cluster := redis.NewClusterClient(o.Cluster())
		cluster.AddHook(follower{cluster})
		db.Client = cluster
	case "redis-sentinel":
		db.Client = redis.NewFailoverClient(o.Failover())
	default:
		simple := o.Simple()
		if at.scheme == "redis-socket" {
			simple.Network = "unix"
		}
		db.Client = redis.NewClient(simple)
	}
	db.Client.AddHook(marking{}) // last, so that it sees the errors as the others change them
	db.Client.AddHook(unsent{})
	db.Client.AddHook(naming{db.Client})
	if opt.WaitReplicas > 0 {
		db.Client.AddHook(replicas{n: opt.WaitReplicas, within: opt.ReadTimeout / 3, client: db.Client})
	}
	db.close = sync.OnceValue(db.Client.Close)
	return db
}

// universal returns the driver's options. They select RESP2, in which Redis sends nothing unasked. Sentinels get the
// password under the default user's name: one without a password accepts any, and others use the password that they
// share with their servers. Pipelines use the same connections, so that a broken connection is given up for them, too.
func universal(at *target, opt Options) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: at.addrs, DB: at.db, Username: at.user, Password: at.password, ClientName: opt.Name,
		MasterName: at.master, SentinelPassword: at.password,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		PoolSize: opt.PoolSize, PipelinePoolSize: -1, DialTimeout: opt.DialTimeout, ReadTimeout: opt.ReadTimeout, WriteTimeout: opt.ReadTimeout,
		Dialer:                   dialTo(at, opt),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Ping checks that Redis answers: every primary of a cluster. The error is an *Error, or ctx's own.
func (db *DB) Ping(ctx context.Context) error {
	err := db.each(ctx, func(ctx context.Context, c redis.UniversalClient) error {
		err := c.Ping(ctx).Err()
		if says(err, []string{"MISCONF"}) {
			return nil // its disk is full: it refuses writes and, for some reason, PING; reading still works
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case denied(err):
		return &Error{ErrDenied, fmt.Sprintf("Redis at %s does not let us in", db), "check user, password and database of the Redis address", err}
	case unwelcome(err):
		return &Error{ErrDenied, fmt.Sprintf("Redis at %s does not accept who we are", db), "it wants a client certificate that its authority has signed: name one in redis.tls.cert and key", err}
	case Away(err):
		return &Error{ErrAway, fmt.Sprintf("Redis at %s is away", db), remedyOr(err, "start it, or check the Redis address, and try again"), err}
	}
	if wrong := db.untrusted(err); wrong != nil {
		return wrong
	}
	if wrong := db.mistaken(err); wrong != nil {
		return wrong
	}
	return fmt.Errorf("asking Redis at %s for a sign of life: %w", db, err)
}

// mistaken returns an error if the server at an address is of another kind than the address says, or nil.
func (db *DB) mistaken(err error) error {
	sentinels := db.at.scheme == "redis-sentinel"
	switch {
	case strings.Contains(err.Error(), `"HTTP/1.`):
		return &Error{ErrURL, fmt.Sprintf("what answers at %s is an HTTP server, not Redis", db), "check host and port of the Redis address: Redis's own port is 6379 where nothing else is said", nil}
	case says(err, []string{"ERR This instance has cluster support disabled"}):
		return &Error{ErrURL, fmt.Sprintf("Redis at %s is not a cluster", db), "write redis:// in the place of redis-cluster://", nil}
	case sentinels && errors.Is(err, redis.Nil):
		return &Error{ErrURL, fmt.Sprintf("the sentinels of %s know no primary of that name", db), "check master=NAME; redis-cli -p 26379 SENTINEL MASTERS lists the names", nil}
	case sentinels && strings.Contains(strings.ToLower(err.Error()), "unknown command 'sentinel'"):
		return &Error{ErrURL, fmt.Sprintf("what answers at %s is not a sentinel", db), "give the sentinels' port, 26379 where nothing else is said, or write redis:// for one Redis", nil}
	}
	return nil
}

// untrusted returns what is wrong with Redis's certificate, or nil.
func (db *DB) untrusted(err error) error {
	wrong, is := errors.AsType[*tls.CertificateVerificationError](err)
	if !is {
		return nil
	}
	hint := "name the file of its authority in redis.tls.ca"
	if _, other := errors.AsType[x509.HostnameError](wrong.Err); other {
		hint = "write the name that its certificate has into the address, or into redis.tls.server_name"
	}
	return &Error{ErrDenied, fmt.Sprintf("the certificate of Redis at %s is not trusted", db), hint, wrong.Err}
}

// unwelcome reports whether Redis aborted the handshake because of our certificate, or the lack of one.
func unwelcome(err error) bool {
	text := err.Error()
	return strings.Contains(text, "remote error: tls:") && strings.Contains(text, "certificate")
}

func (db *DB) each(ctx context.Context, ask func(context.Context, redis.UniversalClient) error) error {
	return eachPrimary(ctx, db.Client, ask)
}

// eachPrimary calls ask for the single Redis, or for every primary of a cluster.
func eachPrimary(ctx context.Context, client redis.UniversalClient, ask func(context.Context, redis.UniversalClient) error) error {
	if c, ok := client.(interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	}); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return ask(ctx, node) })
	}
	return ask(ctx, client)
}

// String names the address without user and password.
func (db *DB) String() string { return db.at.String() }

// Close closes the connections. An embedded Redis ends with them. It may be called twice.
func (db *DB) Close() error { return db.close() }

// Node returns the Redis that holds a key, for commands that concern a server instead of a key, such as SCAN: in a
// cluster, the primary that currently has the key's slot.
func Node(ctx context.Context, c redis.UniversalClient, key string) (redis.Cmdable, error) {
	if cluster, ok := c.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return c, nil
}

// follower makes a cluster's client reload the cluster state as soon as a node does not answer. By itself, the client
// learns of a failover only from a live node (MOVED), or within a minute, and would use the dead node until then.
type follower struct{ c *redis.ClusterClient }

// DialHook implements redis.Hook.
func (f follower) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (f follower) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return f.heed(next(ctx, cmd)) }
}

// ProcessPipelineHook implements redis.Hook.
func (f follower) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return f.heed(next(ctx, cmds)) }
}

func (f follower) heed(err error) error {
	if Away(err) {
		f.c.ReloadState(context.Background()) // in the background, one at a time
	}
	return err
}
