package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/double"
	"spillway/internal/provider"
)

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
