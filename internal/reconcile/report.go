package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"spillway/internal/job"
	"spillway/internal/producer"
)

// Columns names the columns of a report; in NDJSON, fields or dotted paths. Empty: the report lacks the column.
type Columns struct {
	ID, Amount, Currency, Status, Reference string
}

// ReportOptions says how to read a report.
type ReportOptions struct {
	Columns
	Gateway string
	Format  string // csv or ndjson; empty means by the extension of the file's name, else ndjson
	// Separator, Decimal and Encoding are as in producer.Options.
	Separator, Decimal byte
	Encoding           string
	// IDs is one of IDs. Empty means IDIsJob.
	IDs string
	// Minor says that amounts are whole numbers of minor units; otherwise they are in units of their currency.
	Minor bool
	// OneCurrency is the currency of all lines, if there is no column for it. Empty: unknown.
	OneCurrency string
	// Done and Refused are the statuses that mean a charge and a refusal. Without a Status column every line is
	// a charge.
	Done, Refused []string
}

// check reports contradictory options.
func (o ReportOptions) check() error {
	both := slices.IndexFunc(o.Done, func(s string) bool { return slices.Contains(o.Refused, s) })
	_, listed := job.CurrencyDigits(o.OneCurrency)
	switch {
	case o.ID == "":
		return usage("say which column has the ids: --map id=reference,amount=gross,currency=currency", "the map names no id")
	case o.Status != "" && len(o.Done) == 0:
		return usage("name the statuses that mean a charge: --done paid,settled", "the map names a status, but not which values are charges")
	case o.Status == "" && len(o.Done)+len(o.Refused) > 0:
		return usage("add the column to the map: --map id=…,status=COLUMN", "--done and --refused choose by the status, and the map names none")
	case slices.Contains(o.Done, ""), slices.Contains(o.Refused, ""):
		return usage("name each status: --done paid,settled", "--done or --refused has an empty status")
	case both >= 0:
		return usage("let each status mean one thing", "the status %q is in --done and in --refused", o.Done[both])
	case o.OneCurrency != "" && o.Currency != "":
		return usage("leave one of the two out", "the map names the currency's column, and --currency says the currency")
	case o.OneCurrency != "" && !listed:
		return usage("write its three letters: --currency EUR", "ISO 4217 lists no currency %q", o.OneCurrency)
	case o.Amount != "" && !o.Minor && o.Currency == "" && o.OneCurrency == "":
		return usage("name its column, or say --currency EUR; or --amounts minor, if they are whole numbers of minor units",
			"the map names an amount without a currency, which says how many decimals it has")
	}
	return nil
}

func usage(hint, format string, args ...any) error {
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// The fields of the payload that producer makes of a line.
const (
	toAmount    = "amount"
	toCurrency  = "currency"
	toStatus    = "status"
	toReference = "reference"
)

// fields returns the map by which producer makes a payload of a line's columns.
func (o ReportOptions) fields() *job.Map {
	m := &job.Map{}
	add := func(to, from string, as job.MapAs) {
		if from != "" {
			m.Fields = append(m.Fields, job.MapField{To: to, From: from, As: as})
		}
	}
	as := job.MapPlain
	if !o.Minor {
		as = job.MapMinor
	}
	add(toAmount, o.Amount, as)
	add(toCurrency, o.Currency, job.MapPlain)
	add(toStatus, o.Status, job.MapPlain)
	add(toReference, o.Reference, job.MapPlain)
	if o.OneCurrency != "" {
		m.Fields = append(m.Fields, job.MapField{To: toCurrency, Value: json.RawMessage(`"` + o.OneCurrency + `"`)})
	}
	if o.Currency != "" || o.OneCurrency != "" {
		m.Currency = toCurrency
	}
	return m
}

// Line is one line of a report.
type Line struct {
	Number    int
	ID        string
	Money     string // as job.MoneyField returns it; empty if the report has no amounts
	Refused   bool   // refused, or charged
	Status    string // set if PassedOver
	Reference string
	// PassedOver says that it is neither a charge nor a refusal.
	PassedOver bool
	// Refund says that its amount is negative: it is neither a charge nor the refusal of one.
	Refund bool
	// Unclear says that it names its job, but not the outcome: it is ignored, a refund, or unusable.
	Unclear bool
	// Shared says that several jobs have the name in it.
	Shared bool
	// Foreign is the id in the report, if that is not a job id. ID is then the job's, unless the line has no
	// job.
	Foreign string
	Nobodys bool
	// Err is why the line is unusable. ID is empty then if it could not be read.
	Err error
}

// Report reads a settlement report as a stream.
type Report struct {
	opt ReportOptions
	in  *producer.Reader
}

// NewReport returns a Report that reads r. It already reads the header of a CSV file. Its errors carry code
// usage, or failed if reading r failed.
func NewReport(r io.Reader, opt ReportOptions) (*Report, error) {
	opt.Done, opt.Refused = trimmed(opt.Done), trimmed(opt.Refused)
	if err := opt.check(); err != nil {
		return nil, err
	}
	fields := opt.fields()
	in, err := producer.New(r, producer.Options{Format: opt.Format, IDField: opt.ID, Gateway: opt.Gateway, Separator: opt.Separator, Decimal: opt.Decimal,
		Encoding: opt.Encoding, Cards: func(string) job.CardRule { return job.CardRule{Then: job.CardsAllow} }, Map: func(string) *job.Map { return fields }, Told: "--map"})
	if err != nil {
		return nil, err
	}
	return &Report{opt: opt, in: in}, nil
}

// trimmed returns statuses without surrounding white space, as a line's are compared.
func trimmed(statuses []string) []string {
	all := make([]string, 0, len(statuses))
	for _, s := range statuses {
		all = append(all, strings.TrimSpace(s))
	}
	return all
}

// Next returns the next line that is not blank. At the end it returns io.EOF; any other error means that
// reading failed.
func (r *Report) Next() (Line, error) {
	read, err := r.in.Next()
	if err != nil {
		return Line{}, broken(err)
	}
	line := Line{Number: read.Number, ID: read.ID, Err: read.Err}
	if read.Err == nil {
		line.ID = read.Job.ID
		line.Err = r.fill(&line, read.Job.Payload)
	}
	return line, nil
}

// broken says what to do if reading the input failed.
func broken(err error) error {
	if e, ok := errors.AsType[*job.Error](err); ok {
		return &job.Error{Code: e.Code, Message: e.Message, Err: e.Err, Hint: "mend it and run again: nothing was compared"}
	}
	return err
}

// fill reads the mapped fields of a line.
func (r *Report) fill(line *Line, payload []byte) (err error) {
	var cells struct{ Status, Reference json.RawMessage }
	if err := json.Unmarshal(payload, &cells); err != nil {
		return errors.New("it can't be read")
	}
	if line.Reference, err = text(cells.Reference, r.opt.Reference); err != nil {
		return err
	}
	status, err := text(cells.Status, r.opt.Status)
	if err != nil {
		return err
	}
	switch status = strings.TrimSpace(status); {
	case r.opt.Status == "" || slices.Contains(r.opt.Done, status):
	case slices.Contains(r.opt.Refused, status):
		line.Refused = true
	default:
		line.PassedOver, line.Status = true, status
	}
	if r.opt.Amount == "" || line.PassedOver {
		return nil
	}
	line.Money = producer.Money(payload, toAmount, r.opt.fieldOfCurrency())
	if line.Money == "-" && !line.Refused {
		return r.opt.noMoney(payload)
	}
	line.Refund = strings.HasPrefix(line.Money, "-") && line.Money != "-"
	return nil
}

// fieldOfCurrency returns the payload field with the currency; empty: unknown.
func (o ReportOptions) fieldOfCurrency() string {
	if o.Currency == "" && o.OneCurrency == "" {
		return ""
	}
	return toCurrency
}

// noMoney says why a charge has no amount that can be read.
func (o ReportOptions) noMoney(payload []byte) error {
	if _, err := job.MoneyOf(payload, toAmount, ""); err != nil && o.Minor {
		return fmt.Errorf("the field %q has no amount in minor units, which is a whole number: leave --amounts minor out if it is in units of the currency", o.Amount)
	} else if err != nil {
		return fmt.Errorf("the field %q has no amount", o.Amount)
	}
	if _, err := job.MoneyOf(payload, toAmount, o.fieldOfCurrency()); err != nil {
		return job.NoCurrency(o.Currency)
	}
	return fmt.Errorf("the amount in the field %q is larger than any in the books", o.Amount)
}

// text is a text or a number of a payload.
func text(value json.RawMessage, column string) (string, error) {
	value = bytes.TrimSpace(value)
	switch {
	case len(value) == 0:
		return "", nil
	case value[0] == '{' || value[0] == '[':
		return "", fmt.Errorf("the field %q is neither a text nor a number", column)
	case value[0] != '"':
		return string(value), nil
	}
	var s string
	err := json.Unmarshal(value, &s)
	return s, err
}

// Minor is an amount in minor units, in JSON a whole number.
type Minor = *big.Int

// amountOf parses the result of job.MoneyField; nil if there is no amount.
func amountOf(booked string) *Amount {
	m, ok := job.Booked(booked)
	if !ok {
		return nil
	}
	return &Amount{Minor: m.Minor, Currency: m.Currency}
}

// compared says how two sums of money differ; Agree if they do not, or if one is unknown.
func compared(reported, recorded *Amount) Kind {
	switch {
	case reported == nil || recorded == nil:
		return Agree
	case reported.Currency != "" && recorded.Currency != "" && reported.Currency != recorded.Currency:
		return OtherCurrency
	case reported.Minor.Cmp(recorded.Minor) != 0:
		return OtherAmount
	}
	return Agree
}

// same reports whether both are known, with the same amount and currency.
func same(reported, recorded *Amount) bool {
	return reported != nil && recorded != nil && reported.Currency != "" && reported.Currency == recorded.Currency && reported.Minor.Cmp(recorded.Minor) == 0
}

// add adds one more job.
func (s *Sum) add(reported job.Amounts, recorded *Amount) {
	s.Jobs++
	s.Reported.AddAll(reported)
	if recorded != nil {
		s.Recorded.Add(job.Money{Minor: recorded.Minor, Currency: recorded.Currency})
	}
}
