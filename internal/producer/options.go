package producer

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// The formats of a billing file.
const (
	NDJSON = "ndjson" // one JSON object a line
	CSV    = "csv"    // a header row, then one record a job
)

// Options says how to read a billing file. A line's own values take precedence over Gateway, Batch, At and
// Expires.
type Options struct {
	Format  string    // ndjson or csv; empty means by the extension of the file's name, else ndjson
	IDField string    // the field that holds the id (in NDJSON also a dotted path), while the line itself is the payload; empty means the wrapped form; required for CSV
	Gateway string    // the gateway of lines that name none; empty means that every line must name one
	Batch   string    // the batch of lines that name none; empty means none
	At      time.Time // the earliest time of sending; zero means now
	Expires time.Time // the time after which jobs must not be sent; zero means never
	Class   string    // the class of jobs that name none; empty means the gateway's default
	Route   string    // the route of jobs that name none; empty means the gateway's own request
	Lane    string    // the lane of jobs that name none; empty means the lane in their payload, or none
	// RouteField is the field that holds the route, if the line itself is the payload; in NDJSON also a dotted
	// path. A line without it, or with an empty value, names no route. Empty means that no field does.
	RouteField string
	// Shown means that lines may be the output of dlq show, list and export for parked jobs. Members that are
	// not the job's own are ignored, an empty batch means none, a missing cost means 0, and the payload is
	// required.
	Shown bool
	// Open opens a payload that dlq export sealed for that job. Nil means that such lines can't be used.
	Open func(gateway, id string, sealed []byte) ([]byte, error)
	// Gateways returns whether a gateway is configured, and the highest cost that its limits can ever grant; 0
	// means any. Nil means that every well-formed name is accepted.
	Gateways func(name string) (maxCost int64, ok bool)
	// Amount returns where a gateway's payloads have their money, and its bounds. Nil means that amounts are
	// not checked.
	Amount func(gateway string) job.AmountRule
	// ClassOf returns the class of a job that names this one, as stored in its record, or why it can't have
	// one. Nil means that any name is accepted.
	ClassOf func(gateway, class string) (string, error)
	// RouteOf returns the route of a job that names this one, or why it can't have it; an empty name means that
	// the job names none. Nil means that any name is accepted.
	RouteOf func(gateway, route string) (string, error)
	// Lanes returns where a gateway's jobs have their lane, or nil if it has no lanes. A nil Lanes means that
	// any lane is accepted.
	Lanes func(gateway string) *job.LaneKey
	// Cards returns the rule for card numbers in a gateway's jobs. Nil means that all are refused.
	Cards func(gateway string) job.CardRule
	// Key returns why a gateway would not accept the idempotency key of a job with that id, or nil. A nil Key
	// accepts every id.
	Key func(gateway, id string) error
	// Map returns the map that makes a gateway's payloads from records, or nil if the records are the payloads.
	// A nil Map means that for every gateway. Payloads sealed by dlq export, lines that say "mapped", and, with
	// Shown, all lines in the wrapped form are not mapped again.
	Map func(gateway string) *job.Map
	// Separator separates the fields of a CSV file: a visible ASCII character, or a tab. Zero means a comma.
	Separator byte
	// Decimal is the decimal mark in the numbers that Map reads: a point or a comma. The other of the two may
	// separate thousands. Zero means a point, with no comma anywhere. JSON numbers always use a point.
	Decimal byte
	// Encoding is one of Encodings. Empty means UTF-8.
	Encoding string
	// Told is the flag that names the id's column and makes Map, for errors. Empty means that --id-field names
	// the column and Map comes from the configuration.
	Told string
	// Flags says that the reader of the errors can use flags: errors may suggest one.
	Flags bool
}

func (r *Reader) checkOptions() error {
	o := r.opt
	switch {
	case o.Format != NDJSON && o.Format != CSV:
		return usage("use ndjson or csv", "%q is not a format", o.Format)
	case o.Format == CSV && o.IDField == "":
		return usage("name the column of the id: --id-field invoice", "a CSV file needs --id-field")
	case o.RouteField != "" && o.IDField == "":
		return usage("leave --route-field out, or name the field of the id: --id-field invoice", "only where the lines are the payloads is a field of them the route; others say \"route\"")
	case o.IDField != "" && o.Gateway == "":
		return usage("name the gateway: -g stripe", "with --id-field the lines can't name their gateway")
	case !o.At.IsZero() && !o.Expires.IsZero() && !o.Expires.After(o.At):
		return usage("let --expires be later than --at", "the jobs would expire before they may be sent")
	}
	if err := checkBatch(o.Batch); o.Batch != "" && err != nil {
		return usage("choose another name for --batch", "%v", err)
	}
	if o.Gateway == "" {
		return nil
	}
	if err := job.CheckGateway(o.Gateway); err != nil {
		return &job.Error{Code: job.CodeUsage, Message: err.Error()}
	}
	if _, err := r.maxCost(o.Gateway); err != nil {
		return &job.Error{Code: job.CodeNotFound, Message: err.Error(), Hint: "the gateways are those of the configuration file"}
	}
	return nil
}

// checkForm refuses options in which no file can be written.
func (o Options) checkForm() error {
	c := o.Separator
	visible := c > ' ' && c <= '~' && c != '"' && c != '_' && !isLetter(c) && (c < '0' || c > '9')
	switch {
	case c != 0 && o.Format != CSV:
		return usage("leave it out, or say --format csv", "--separator is for CSV files")
	case c != 0 && c != '\t' && !visible:
		return usage("say --separator ';' or --separator tab", "%q can't separate fields", c)
	case o.Decimal != 0 && o.Decimal != '.' && o.Decimal != ',':
		return usage("say --decimal ',' or --decimal '.'", "%q can't stand before decimals", o.Decimal)
	case o.Encoding != "" && !slices.Contains(Encodings(), o.Encoding):
		return usage("use "+strings.Join(Encodings(), ", "), "%q is not an encoding", o.Encoding)
	}
	return nil
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// FormatOf returns the format that a file's name implies.
func FormatOf(name string) string {
	if strings.EqualFold(filepath.Ext(name), ".csv") {
		return CSV
	}
	return NDJSON
}

func formatOfReader(r io.Reader) string {
	if named, ok := r.(interface{ Name() string }); ok {
		return FormatOf(named.Name())
	}
	return NDJSON
}

func usage(hint, format string, args ...any) error {
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}
