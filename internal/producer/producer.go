// Package producer is step 1 of 8: it reads a billing file as a stream of jobs, in constant memory, and reports
// for every unusable line why it can't be used.
package producer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/encoding/charmap"

	"spillway/internal/job"
	"spillway/internal/pan"
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

// Line is the result for one line, or for one CSV record, which may span several lines. Except for Rest, the
// caller may keep it.
type Line struct {
	Number int       // first physical line, counted from 1
	Last   int       // last physical line; for a line with Rest, the last that Raw holds
	Job    job.Job   // the job; valid only if Err is nil
	Raw    []byte    // as read, with its line end; only the beginning if it is too long
	Rest   io.Reader // the part of an overlong line after Raw, valid until the next call of Next; else nil
	Err    error     // why it can't be used, without the line number; never contains a value of the payload
	ID     string    // if Err is not nil and Options.IDField names the id: the id, if it is valid
}

// Reader reads the lines of a billing file.
type Reader struct {
	opt     Options
	in      *lines
	json    parser
	csv     *csvHeader   // nil for NDJSON
	batch   string       // the last line's batch, which usually is the next one's
	gateway gatewayCheck // the last gateway looked up, which usually is the next one's
	mappers map[string]*mapper
	// charset is the encoding of the file; nil for UTF-8.
	charset *charmap.Charmap
	// State of the current line:
	sealed []byte // its sealed payload, in quotes; nil if it has none
	paid   bool   // it has a plain payload
	mapped bool   // it says that its payload is already mapped
	id     string // its id, if Options.IDField names it
}

// New returns a Reader of r. It already reads the byte order mark and the header of a CSV file. Its errors
// carry job.CodeUsage (the options or the header can't be used) or job.CodeNotFound (no such gateway); a read
// error of r carries job.CodeFailed.
func New(r io.Reader, opt Options) (*Reader, error) {
	if opt.Format == "" {
		opt.Format = formatOfReader(r)
	}
	if err := opt.checkForm(); err != nil {
		return nil, err
	}
	opt.Separator = cmp.Or(opt.Separator, ',')
	rd := &Reader{opt: opt, in: newLines(r, opt.Separator), charset: charsetOf(opt.Encoding)}
	if err := rd.checkOptions(); err != nil {
		return nil, err
	}
	if err := rd.in.start(); err != nil {
		return nil, err
	}
	if opt.Format == CSV {
		if err := rd.readHeader(); err != nil {
			return nil, err
		}
	}
	return rd, nil
}

// One parses the whole of text, of any number of lines, as one job in the wrapped form. It returns the error of
// a line that can't be used, or the error of New for invalid options.
func One(text []byte, opt Options) (job.Job, error) {
	opt.Format = NDJSON
	r := &Reader{opt: opt}
	if err := r.checkOptions(); err != nil {
		return job.Job{}, err
	}
	j, err := r.parse(text)
	return j, masked(err)
}

// Header returns the header row of a CSV file as read, or nil.
func (r *Reader) Header() []byte {
	if r.csv == nil {
		return nil
	}
	return r.csv.raw
}

// Number returns the number of the last physical line read so far, including lines of a Rest that was read.
func (r *Reader) Number() int { return r.in.number }

// Next returns the next line that is not blank, whether it is a job or not. At the end it returns io.EOF. Any
// other error means that reading the input failed, and carries job.CodeFailed. A line cut off by such a failure
// is not returned.
func (r *Reader) Next() (Line, error) {
	for {
		line, err := r.record()
		if err != nil {
			return Line{}, err
		}
		if line.Err == nil && blank(line.Raw) {
			continue
		}
		if line.Err == nil {
			r.id = ""
			if line.Job, line.Err = r.parse(line.Raw); line.Err != nil && job.CheckID(r.id) == nil {
				line.ID = pan.MaskString(r.id)
			}
			line.Err = masked(line.Err)
		}
		return line, nil
	}
}

func (r *Reader) record() (Line, error) {
	if r.csv != nil {
		return r.in.record()
	}
	return r.in.line()
}

func (r *Reader) parse(raw []byte) (job.Job, error) {
	raw, err := r.decoded(raw)
	if err != nil {
		return job.Job{}, err
	}
	switch {
	case r.csv != nil:
		return r.csvJob(raw)
	case r.opt.IDField != "":
		return r.plainJob(raw)
	}
	return r.wrappedJob(raw)
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

// gatewayCheck caches the last results of Options.Gateways, Options.Amount and Options.Map.
type gatewayCheck struct {
	name   string
	max    int64
	amount job.AmountRule
	cards  job.CardRule
	mapper *mapper      // nil: records are the payloads
	route  string       // default route, of jobs that name none
	lanes  *job.LaneKey // nil: no lanes
}

var (
	errNoGateway    = errors.New(`no gateway: name one in the line, as "gateway", or for all of them with -g`)
	errEmptyGateway = errors.New(`gateway is empty: name one, or leave the key out`)
)

// maxCost returns the highest cost that the gateway's limits can ever grant; 0 means any.
func (r *Reader) maxCost(gateway string) (int64, error) {
	if gateway == "" {
		return 0, errNoGateway
	}
	if r.gateway.name == gateway {
		return r.gateway.max, nil
	}
	if err := job.CheckGateway(gateway); err != nil {
		return 0, err
	}
	var most int64
	if r.opt.Gateways != nil {
		var ok bool
		if most, ok = r.opt.Gateways(gateway); !ok {
			return 0, fmt.Errorf("no gateway %q is configured", gateway)
		}
	}
	r.gateway = gatewayCheck{name: gateway, max: most}
	if r.opt.Amount != nil {
		r.gateway.amount = r.opt.Amount(gateway)
	}
	if r.opt.Cards != nil {
		r.gateway.cards = r.opt.Cards(gateway)
	}
	if r.opt.Lanes != nil {
		r.gateway.lanes = r.opt.Lanes(gateway)
	}
	r.gateway.mapper = r.mapperOf(gateway)
	if r.opt.RouteOf != nil {
		var err error
		if r.gateway.route, err = r.opt.RouteOf(gateway, ""); err != nil {
			return 0, err
		}
	}
	return most, nil
}

func (r *Reader) mapperOf(gateway string) *mapper {
	if r.opt.Map == nil {
		return nil
	}
	p, known := r.mappers[gateway]
	if known {
		return p
	}
	if m := r.opt.Map(gateway); m != nil {
		p = newMapper(m, r.opt)
	}
	if r.mappers == nil {
		r.mappers = map[string]*mapper{}
	}
	r.mappers[gateway] = p
	return p
}

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
