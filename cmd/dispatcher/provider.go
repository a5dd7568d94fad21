package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/double"
	"spillway/internal/provider"
)

func providerCommand(p *program) *cobra.Command {
	listen := "127.0.0.1:9500"
	behaviour := provider.Config{Limits: []provider.Limit{{N: 100, Window: time.Second}}, Service: 20 * time.Millisecond}
	var apart []provider.Limit
	like := likeness{scale: 1}
	cmd := &cobra.Command{
		Use: "provider", Short: "Play a strict payment gateway, to try a configuration against",
		Long: `Provider answers like a payment gateway with strict limits: it counts every arrival in exact rolling windows
and answers 429 to each call above them. It can also decline, fail or hang, as configured. A call to any
path is a charge, except GET /lookups/ID, which looks a job up.

The job of a call is given by its Idempotency-Key, or else by the header X-Job-Id, the query's id, or the
last part of the path. A gateway without keys needs one of these, like url:
"http://127.0.0.1:9500/payments?id={id}". Otherwise all calls to one path count as one job, and from the
second one on as charged twice.

A fate is an answer that a job, or a share of all jobs, always gets. It takes id=JOB (id=old-* for a prefix)
or share=5%, then status=500 or hang, and retry_after=1s. It charges nothing, unless it hangs, is a success
or a redirect: charge=true and charge=false override this. An incident is an answer for all jobs, or for a
share of the calls.

  GET /stats       what it saw, as one JSON document
  GET /calls       every arrival, one JSON line each
  GET /settings    its behaviour; PUT or PATCH to change it: {"limit":"50/s","decline_every":0,"down":false,
                   "save_500":true,"fates":[{"id":"inv-3","status":403}],"incident":{"status":503,"retry_after":"2s"}}
  POST /reset      clear the log and stats

On SIGINT or SIGTERM it writes its stats to standard output and stops.

` + likeHelp(),
		Example: "  dispatcher provider --limit 100/s --limit 5000/m --decline 10%\n" +
			"  dispatcher provider --limit 100/s --limit-by path=25/s --limit-by header:Stripe-Account=5/s\n" +
			"  dispatcher provider --listen 127.0.0.1:9501 --service 200ms --hang 1% --no-keys -o json\n" +
			"  dispatcher provider --save-500 --fate share=5%,status=500 --fate id=inv-00003,status=403\n" +
			"  dispatcher provider --like stripe/v1 --fate saved-500=share=5% --fate 429=job=inv-00003,reason=endpoint-rate",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := like.check(cmd); err != nil {
				return err
			}
			like.service = behaviour.Service
			behaviour.Limits = append(behaviour.Limits, apart...)
			return p.provide(cmd.Context(), listen, behaviour, like)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", listen, "`ADDRESS` to listen on")
	f.Var(&limitFlag{limits: &behaviour.Limits}, "limit", "`LIMIT` to enforce, like 100/s or 300/10s; repeatable; none for no limit")
	f.Var(limitByFlag{&apart}, "limit-by", "`LIMIT` of calls per path or per value of a header, like path=25/s or header:Stripe-Account=5/s; repeatable")
	f.DurationVar(&behaviour.Service, "service", behaviour.Service, "duration of an answer, as `TIME`")
	f.Var((*shareFlag)(&behaviour.Decline), "decline", "`SHARE` of new keys to decline with 402, like 10% or 0.1")
	f.IntVar(&behaviour.DeclineEvery, "decline-every", 0, "decline every `N`-th job once, with 402; 0 for none")
	f.IntVar(&behaviour.FailEvery, "fail-every", 0, "fail the first call of every `N`-th job, with 500; 0 for none")
	f.Var((*shareFlag)(&behaviour.Fail), "fail", "`SHARE` of calls to answer with 500, uncharged")
	f.Var((*shareFlag)(&behaviour.Hang), "hang", "`SHARE` of calls to charge and never answer")
	f.BoolVar(&behaviour.Save500, "save-500", false, "save a 500 under its key, and repeat it for ever")
	f.BoolVar(&behaviour.Charge500, "charge-500", false, "charge before a 500 of --fail, --fail-every or --incident")
	f.BoolVar(&behaviour.NoMarks, "no-marks", false, "omit Idempotent-Replayed from repeated answers")
	f.StringArrayVar(&like.fates, "fate", nil, "always the same answer for some jobs, as `FATE`, like share=5%,status=500 or, with --like, saved-500=share=5%; repeatable, the first match applies")
	f.StringVar(&like.gateway, "like", "", "play the double of a real gateway, by `NAME`, like stripe/v1")
	f.Float64Var(&like.scale, "time-scale", like.scale, "with --like, run its clock `N` times as fast")
	f.DurationVar(&like.token, "token-life", 0, "with --like, the life of an OAuth token, as `TIME`; 0s for the gateway's own")
	f.DurationVar(&like.lag, "lookup-lag", 0, "with --like, how long searches and lists miss a new payment, as `TIME`; 0s for the documented lag")
	f.StringVar(&like.client, "token-client", "", "with --like, the only client that gets OAuth tokens, as `ID:SECRET`; default: any client")
	f.Var((*incidentFlag)(&behaviour.Incident), "incident", "`ANSWER` for all, like status=429,retry_after=3s,share=30%")
	f.StringVar(&behaviour.Amount, "amount", "amount", "`FIELD` of a request that GET /calls shows as the amount charged, in minor units, like amount.value")
	f.StringVar(&behaviour.Currency, "currency", "currency", "`FIELD` of a request that GET /calls shows as its currency")
	f.BoolVar(&behaviour.Down, "down", false, "answer every call with 503")
	f.BoolVar(&behaviour.NoKeys, "no-keys", false, "ignore idempotency keys: every call charges")
	return cmd
}

// provide serves until ctx ends. It then returns nil, because that is the normal way to stop.
func (p *program) provide(ctx context.Context, listen string, behaviour provider.Config, like likeness) error {
	if behaviour.Service < 0 || behaviour.DeclineEvery < 0 || behaviour.FailEvery < 0 {
		return cli.Usage("give 0 or more", "--service, --decline-every and --fail-every can't be negative")
	}
	var played *double.Double
	var err error
	if like.gateway != "" {
		played, err = like.double()
	} else {
		behaviour.Fates, err = strictFates(like.fates)
	}
	if err != nil {
		return err
	}
	ln, err := bindProvider(listen)
	if err != nil {
		return err
	}
	if played != nil {
		return p.playDouble(ctx, ln, played)
	}
	strict := provider.New(behaviour)
	if !p.Quiet {
		fmt.Fprintf(p.Err, "a provider of %s answers on http://%s; GET /stats and /calls, PUT /settings; stop it with Ctrl-C\n",
			limitsText(behaviour.Limits), ln.Addr())
	}
	if err := strict.Serve(ctx, ln); err != nil {
		return fmt.Errorf("the provider could not go on: %w", err)
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, strict.Stats())
	}
	return p.statsTable(strict.Stats())
}

func bindProvider(listen string) (net.Listener, error) {
	ln, err := provider.Listen(listen)
	switch {
	case err == nil:
		return ln, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, cli.Usage("choose another --listen ADDRESS, or stop what is there", "the port of %s is taken", listen)
	}
	return nil, cli.Usage("write host:port, like 127.0.0.1:9500", "can't listen on %q: %v", listen, err)
}

func (p *program) statsTable(s provider.Stats) error {
	t := cli.NewTable(p.Streams, time.Now(), "SEEN", "NUMBER")
	for _, row := range []struct {
		name string
		n    int
	}{
		{"calls", s.Calls}, {"answered 200", s.OK}, {"charged", s.Charged}, {"charged twice", s.ChargedTwice}, {"look-ups", s.Lookups}, {"declined (402)", s.Declined},
		{"failed (500)", s.Failed}, {"down (503)", s.Down}, {"too many (429)", s.TooMany}, {"in conflict (409)", s.Conflicts},
		{"another answer", s.Other}, {"hung", s.Hung}, {"answered again", s.Replayed}, {"to jobs never called before", s.FirstCalls}, {"most in flight", s.MaxInFlight},
	} {
		t.Row(row.name, row.n)
	}
	for _, f := range s.Fates {
		t.Row("to jobs of "+f.Fate, f.Calls)
	}
	for i, l := range s.Limits {
		t.Row("worst window of "+l, s.MaxInWindow[i])
	}
	t.Row("rate", fmt.Sprintf("%.1f/s", s.Rate))
	if len(s.Limits) > 0 {
		t.Row("of the limit, in the middle 80 %", fmt.Sprintf("%.1f %%", 100*s.Utilisation))
	}
	return t.Flush()
}

func limitsText(limits []provider.Limit) string {
	if len(limits) == 0 {
		return "no limit"
	}
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, " and ")
}

// limitFlag is a repeatable --limit: the first one replaces the default.
type limitFlag struct {
	limits *[]provider.Limit
	given  bool
}

// String shows the limits so far.
func (l *limitFlag) String() string {
	if l.limits == nil {
		return ""
	}
	return limitsText(*l.limits)
}

// Set adds one limit, or removes all.
func (l *limitFlag) Set(text string) error {
	if text == "none" {
		*l.limits, l.given = nil, true
		return nil
	}
	limit, err := provider.ParseLimit(text)
	if err != nil {
		return err
	}
	if !l.given {
		*l.limits = nil
	}
	*l.limits, l.given = append(*l.limits, limit), true
	return nil
}

// Type names the value in the help.
func (*limitFlag) Type() string { return "limit" }

// limitByFlag is a repeatable --limit-by: one more limit.
type limitByFlag struct{ limits *[]provider.Limit }

// String shows nothing: there is no default.
func (l limitByFlag) String() string { return "" }

// Set adds one limit.
func (l limitByFlag) Set(text string) error {
	limit, err := provider.ParseLimitBy(text)
	*l.limits = append(*l.limits, limit)
	return err
}

// Type names the value in the help.
func (limitByFlag) Type() string { return "limit" }

// shareFlag is a share of calls, like 10% or 0.1.
type shareFlag float64

// String shows the share.
func (s *shareFlag) String() string { return fmt.Sprintf("%g%%", 100*float64(*s)) }

// Set reads the share.
func (s *shareFlag) Set(text string) error {
	share, err := provider.ParseShare(text)
	*s = shareFlag(share)
	return err
}

// Type names the value in the help.
func (*shareFlag) Type() string { return "share" }

// incidentFlag is the incident that the provider starts with.
type incidentFlag provider.Incident

// String shows the incident.
func (i *incidentFlag) String() string { return provider.Incident(*i).String() }

// Set reads the incident.
func (i *incidentFlag) Set(text string) error {
	incident, err := provider.ParseIncident(text)
	*i = incidentFlag(incident)
	return err
}

// Type names the value in the help.
func (*incidentFlag) Type() string { return "answer" }

// likeness are the flags of a gateway double.
type likeness struct {
	gateway string
	scale   float64
	service time.Duration
	token   time.Duration // lifetime of tokens; 0: as in the table
	client  string
	lag     time.Duration // of searches and lists; 0: as in the table
	fates   []string
}

// ofTheStrict are flags that a double takes from its table instead.
var ofTheStrict = []string{"limit", "limit-by", "decline", "decline-every", "fail-every", "fail", "hang", "save-500", "charge-500", "no-marks", "incident", "down", "no-keys", "amount", "currency"}

// ofDoubles are flags that only doubles have.
var ofDoubles = []string{"time-scale", "token-life", "token-client", "lookup-lag"}

// likeHelp is the part of the help that lists the gateways and the fates.
func likeHelp() string {
	text := "With --like it is the double of a real gateway, and behaves as documented: where the key is sent, how long it lives,\n" +
		"what is saved under it, what a repeat returns, which limits apply. With --time-scale 1000 a day takes 86 seconds. A fate is then\n" +
		"FATE=WHAT: WHAT is job=ID (job=old-* for a prefix), key=PREFIX or share=5%, and then calls=3 (or all), reason,\n" +
		"charge, save, delay, life, running, final. GET /_double/ledger shows what was charged, GET /_double/calls each call,\n" +
		"GET /_double/lookups what each look-up said and the true state, and POST\n" +
		"/_double/fates adds fates: {\"fate\":\"saved-500\",\"job\":\"inv-3\"}. A gateway with OAuth has a token endpoint, and DELETE /_double/tokens\n" +
		"ends all tokens.\n\nGateways:\n" + columns(double.Names(), 100) + "\nFates (each gateway has its own set):\n"
	for _, name := range double.FateNames() {
		text += fmt.Sprintf("  %-20s %s\n", name, double.FateSays(name))
	}
	return text
}

// columns breaks words into lines of at most width characters.
func columns(words []string, width int) string {
	var text, line string
	for _, w := range words {
		if len(line)+len(w) > width {
			text, line = text+line+"\n", ""
		}
		line += "  " + w
	}
	return text + line + "\n"
}

// check refuses flags of the other kind of provider.
func (l likeness) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	if l.gateway == "" {
		for _, name := range ofDoubles {
			if f.Changed(name) {
				return cli.Usage("add --like, with one of "+strings.Join(double.Names(), ", "), "--%s is that of a double's", name)
			}
		}
		return nil
	}
	for _, name := range ofTheStrict {
		if f.Changed(name) {
			return cli.Usage("leave --"+name+" out, or leave --like out; trouble is made with --fate", "the double of %s knows from its documents what --%s would say", l.gateway, name)
		}
	}
	if l.scale <= 0 || l.service < 0 || l.token < 0 || l.lag < 0 {
		return cli.Usage("give 1 or more for --time-scale, and 0s or more for --service, --token-life and --lookup-lag", "time can't stand still or go back")
	}
	return nil
}

// double returns the double requested.
func (l likeness) double() (*double.Double, error) {
	table, err := double.Load(l.gateway)
	if err != nil {
		return nil, cli.Usage("choose one of them", "--like: %v", err)
	}
	options := double.Options{TimeScale: l.scale, Service: l.service, TokenLife: l.token, Client: l.client, Lag: l.lag}
	for _, text := range l.fates {
		fate, err := double.ParseFate(text)
		if err != nil {
			return nil, cli.Usage("write FATE=WHAT, like saved-500=share=5%", "--fate: %v", err)
		}
		options.Fates = append(options.Fates, fate)
	}
	d, err := double.New(table, options)
	if err != nil {
		return nil, cli.Usage("see dispatcher provider --help", "--like %s: %v", l.gateway, err)
	}
	return d, nil
}

// strictFates parses the fates of the strict provider.
func strictFates(texts []string) (fates []provider.Fate, err error) {
	for _, text := range texts {
		f, err := provider.ParseFate(text)
		if err != nil {
			return nil, cli.Usage("with --like NAME fates are FATE=WHAT", "invalid argument %q for \"--fate\" flag: %v", text, err)
		}
		fates = append(fates, f)
	}
	return fates, nil
}

// playDouble serves until ctx ends.
func (p *program) playDouble(ctx context.Context, ln net.Listener, d *double.Double) error {
	if !p.Quiet {
		fmt.Fprintf(p.Err, "the double of %s answers on http://%s; GET /_double/ledger and /_double/calls, POST /_double/fates, DELETE /_double/tokens; stop it with Ctrl-C\n",
			d.Table().Gateway, ln.Addr())
	}
	err := provider.Serve(ctx, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, done := provider.Arrival(r)
		defer done()
		d.ServeHTTP(w, r.WithContext(double.WithArrival(r.Context(), at)))
	}))
	if err != nil {
		return fmt.Errorf("the double could not go on: %w", err)
	}
	s := d.Stats()
	if p.JSON() {
		return cli.WriteJSON(p.Out, s)
	}
	t := cli.NewTable(p.Streams, time.Now(), "SEEN", "NUMBER")
	t.Row("calls", s.Calls)
	t.Row("with a known key", s.Repeats)
	t.Row("cut", s.Cut)
	t.Row("look-ups", s.Lookups)
	t.Row("charged", s.Charged)
	t.Row("jobs charged twice", s.ChargedTwice)
	t.Row("token requests", s.Tokens.Requests)
	for _, state := range slices.Sorted(maps.Keys(s.States)) {
		t.Row("charges that are "+state, s.States[state])
	}
	return t.Flush()
}
