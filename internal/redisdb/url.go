package redisdb

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Embedded is the address of a Redis within the process, whose data is lost at the end.
const Embedded = "embedded"

const forms = "use redis://[user:password@]host:port/db, rediss://… (TLS), redis-socket:///path?db=0, " +
	"redis-sentinel://[user:password@]h:p,h:p/db?master=NAME[&tls=true], " +
	"redis-cluster://[user:password@]h:p,h:p[?tls=true] or embedded"

const escape = "write @ / ? # and % of a user or password as %40 %2F %3F %23 %25"

// target is the destination of a Redis address.
type target struct {
	scheme   string
	addrs    []string // host:port, or the path of a socket
	user     string
	password string
	db       int
	master   string // only for sentinels
	tls      bool
}

// Way is how Redis is reached by an address.
type Way struct {
	// Hosts are host:port, or the path of a socket.
	Hosts    []string
	Socket   bool
	TLS      bool
	Password bool
}

// WayTo parses an address without connecting.
func WayTo(rawURL string) (Way, error) {
	at, err := parseURL(rawURL)
	if err != nil {
		return Way{}, err
	}
	return Way{Hosts: at.addrs, Socket: at.scheme == "redis-socket", TLS: at.tls, Password: at.password != ""}, nil
}

// parts is a split address, not decoded yet. Errors must not show any of it: every part may contain a password that was
// not escaped.
type parts struct{ scheme, userinfo, hosts, path, query string }

// parseURL parses an address. net/url can't: it refuses a list of hosts since Go 1.26.
func parseURL(raw string) (*target, error) {
	if raw == Embedded {
		return &target{scheme: Embedded}, nil
	}
	p, err := split(raw)
	if err != nil {
		return nil, err
	}
	read, known := map[string]func(parts, *target, url.Values) error{
		"redis": single, "rediss": single, "redis-socket": socket, "redis-sentinel": sentinel, "redis-cluster": cluster,
	}[p.scheme]
	if !known {
		return nil, usage("the Redis address begins with none of the known schemes", forms)
	}
	t := &target{scheme: p.scheme, tls: p.scheme == "rediss"}
	query, err := t.common(p)
	if err != nil {
		return nil, err
	}
	return t, read(p, t, query)
}

func split(raw string) (parts, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return parts{}, usage("the Redis address has no scheme such as redis://", forms)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.ContainsAny(rest[end:], "@#") {
		return parts{}, usage("the Redis address has an @ or # behind the host", escape)
	}
	p := parts{scheme: scheme, hosts: rest[:end]}
	if at := strings.LastIndexByte(p.hosts, '@'); at >= 0 {
		p.userinfo, p.hosts = p.hosts[:at], p.hosts[at+1:]
	}
	p.path, p.query, _ = strings.Cut(rest[end:], "?")
	return p, nil
}

// common parses what all forms have: user, password and parameters.
func (t *target) common(p parts) (url.Values, error) {
	user, password, _ := strings.Cut(p.userinfo, ":")
	var errUser, errPassword error
	t.user, errUser = url.PathUnescape(user)
	t.password, errPassword = url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return nil, usage("the Redis address has a user or password with a stray %", escape)
	}
	query, err := url.ParseQuery(p.query)
	if err != nil {
		return nil, usage("the Redis address has parameters that can't be read", forms)
	}
	return query, nil
}

func single(p parts, t *target, query url.Values) error {
	if err := allow(query); err != nil {
		return err
	}
	if err := t.hosts(p.hosts, "6379"); err != nil {
		return err
	}
	if len(t.addrs) > 1 {
		return usage("the Redis address has several hosts", "use redis-sentinel:// or redis-cluster:// for more than one")
	}
	return t.database(strings.TrimPrefix(p.path, "/"))
}

func socket(p parts, t *target, query url.Values) error {
	if err := allow(query, "db"); err != nil {
		return err
	}
	path, err := url.PathUnescape(p.path)
	if err != nil || len(path) < 2 || p.hosts != "" {
		return usage("the Redis address of a socket needs an absolute path", "use redis-socket:///path?db=0, with three slashes")
	}
	t.addrs = []string{path}
	return t.database(query.Get("db"))
}

func sentinel(p parts, t *target, query url.Values) error {
	if err := allow(query, "master", "tls"); err != nil {
		return err
	}
	t.master = query.Get("master")
	if t.master == "" {
		return usage("the Redis address of sentinels names no primary", "add ?master=NAME, the name in the sentinels' configuration")
	}
	if err := t.hosts(p.hosts, "26379"); err != nil {
		return err
	}
	if err := t.switchTLS(query); err != nil {
		return err
	}
	return t.database(strings.TrimPrefix(p.path, "/"))
}

func cluster(p parts, t *target, query url.Values) error {
	if err := allow(query, "tls"); err != nil {
		return err
	}
	if path := strings.TrimPrefix(p.path, "/"); path != "" && path != "0" {
		return usage("the Redis address of a cluster names a database", "leave it out: a cluster has only database 0")
	}
	if err := t.hosts(p.hosts, "6379"); err != nil {
		return err
	}
	return t.switchTLS(query)
}

func allow(query url.Values, names ...string) error {
	known := "it takes none"
	if len(names) > 0 {
		known = "it takes " + strings.Join(names, " and ")
	}
	for name, values := range query {
		if !slices.Contains(names, name) {
			return usage("the Redis address has an unknown parameter", known+"; "+escape)
		}
		if len(values) > 1 {
			return usage("the Redis address has the parameter "+name+" twice", "give it once")
		}
	}
	return nil
}

func (t *target) hosts(list, port string) error {
	for h := range strings.SplitSeq(list, ",") {
		addr, ok := hostPort(h, port)
		if !ok {
			return usage("the Redis address has a host that can't be read", "write host:port; "+escape)
		}
		t.addrs = append(t.addrs, addr)
	}
	return nil
}

func hostPort(h, port string) (string, bool) {
	host, p, err := net.SplitHostPort(h)
	if err != nil {
		host, p, err = net.SplitHostPort(h + ":" + port)
	}
	n, errPort := strconv.ParseUint(p, 10, 16)
	if err != nil || errPort != nil || n == 0 || host == "" || strings.ContainsAny(host, " \t%") {
		return "", false
	}
	return net.JoinHostPort(host, p), true
}

func (t *target) database(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return usage("the Redis address has a database that is not a number", "use a number from 0, 0 when in doubt; "+escape)
	}
	t.db = int(n)
	return nil
}

func (t *target) switchTLS(query url.Values) error {
	switch query.Get("tls") {
	case "":
	case "true":
		t.tls = true
	case "false":
		t.tls = false
	default:
		return usage("the Redis address has a tls that is neither true nor false", "use tls=true for TLS")
	}
	return nil
}

// String names the address without user and password.
func (t *target) String() string {
	switch {
	case t.scheme == Embedded:
		return Embedded
	case t.master != "":
		return t.scheme + "://" + strings.Join(t.addrs, ",") + "/" + strconv.Itoa(t.db) + "?master=" + t.master
	case t.scheme == "redis-socket":
		return t.scheme + "://" + t.addrs[0] + "?db=" + strconv.Itoa(t.db)
	case t.scheme == "redis-cluster":
		return t.scheme + "://" + strings.Join(t.addrs, ",")
	}
	return t.scheme + "://" + t.addrs[0] + "/" + strconv.Itoa(t.db)
}
