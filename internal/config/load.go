package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Options says how to read a file.
type Options struct {
	// Secrets requires the tokens' and the gateways' secrets, which run and doctor need. If it is off, unset
	// variables are allowed in a token, and in a gateway's url, headers, method, encoding and timeout. They are
	// never allowed in key_lifetime, idempotency_header and idempotency_prefix, which decide whether a job may
	// be replayed.
	Secrets bool
	// Payloads requires the encryption keys, which reading or writing payloads needs. If it is off, unset
	// variables are allowed in them.
	Payloads bool
	// Env looks up a variable. nil = os.LookupEnv.
	Env func(string) (string, bool)
	// written is called with each gateway's keys as in the files. Nil: not called.
	written func(name string, keys any)
}

// maxFile is the largest configuration file, in bytes, enough for thousands of gateways. A larger file is
// probably another kind of file.
const maxFile = 1 << 20

// Load reads the file at path. The error is Faults if the configuration is wrong.
func Load(path string, opt Options) (*Config, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text, opt)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, whole(path, unopened(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, whole(path, "this is a directory: name a file in it, with -c FILE")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, whole(path, "the file can't be read: "+reason(err))
	}
	return text, nil
}

func unopened(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file: name the configuration with -c FILE or $DISPATCHER_CONFIG"
	case errors.Is(err, fs.ErrPermission):
		return "you may not read this file: change its permissions, or run as a user who may"
	}
	return "the file can't be opened: " + reason(err)
}

// reason returns the cause without the path, which the fault's position contains.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// whole returns a fault of the whole file.
func whole(file, message string) error {
	return Faults{{Position: Position{File: file}, Message: message}}
}

// Parse parses text from a file with that name. The error is Faults if the configuration is wrong.
func Parse(name string, text []byte, opt Options) (*Config, error) {
	if opt.Env == nil {
		opt.Env = os.LookupEnv
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if err := checkText(name, text); err != nil {
		return nil, err
	}
	body, err := parseTree(name, text)
	if err != nil {
		return nil, err
	}
	r := &reader{file: name, opt: opt, places: map[string]Position{}, faulted: map[string]bool{}, unset: map[string]bool{},
		pems: map[string]string{}, pairs: map[TLS]error{}}
	c := r.config(body)
	if len(r.faults) > 0 {
		return nil, r.sorted()
	}
	slices.Sort(r.files)
	c.SecretFiles = slices.Compact(r.files)
	return c, nil
}

// checkText refuses input that is not text, because the YAML parser would misread it.
func checkText(name string, text []byte) error {
	if len(text) > maxFile {
		return whole(name, "the file is larger than 1 MiB, so it can't be a configuration: name the right one with -c FILE")
	}
	if fault := checkUTF8(name, text); fault != nil {
		return Faults{fault}
	}
	return nil
}

// checkUTF8 returns a fault at the first byte that is not UTF-8, or nil.
func checkUTF8(name string, text []byte) *Fault {
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		control := c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f
		if control || c == utf8.RuneError && size == 1 {
			before := text[:i]
			at := Position{name, bytes.Count(before, []byte("\n")) + 1, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])}
			return &Fault{Position: at, Message: fmt.Sprintf(
				"the byte %#02x is not text: save the file as UTF-8, and write such a character as an escape in double quotes", text[i])}
		}
		i += size
	}
	return nil
}

// parseTree returns the file's top-level mapping.
func parseTree(name string, text []byte) (body ast.Node, err error) {
	start := Position{name, 1, 1}
	defer func() {
		// The parser has panicked on odd input before; the user should get a message.
		if recover() != nil {
			body, err = nil, Faults{{Position: start, Message: "this can't be read as YAML: compare it with the sample in docs/configuration.md"}}
		}
	}()
	if at, deep := tooDeep(name, text); deep {
		return nil, Faults{{Position: at, Message: "this is nested more than 100 levels deep: no key needs that, look for brackets that are never closed"}}
	}
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, Faults{syntaxFault(start, err)}
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body == nil:
			body = doc.Body
		default:
			at := doc.Body.GetToken().Position
			return nil, Faults{{Position: Position{name, at.Line, 1}, Message: "a second document begins here: take out the --- before it, a configuration is one document"}}
		}
	}
	if body == nil {
		return nil, Faults{{Position: start, Message: "the file is empty: it needs at least gateways, with a request.url and leak.limits for each"}}
	}
	return body, nil
}

// tooDeep finds brackets and dashes nested so deeply that the recursive parser might exhaust the stack. It
// counts those in texts and comments, too; no configuration has a hundred of them open.
func tooDeep(name string, text []byte) (Position, bool) {
	depth, at := 0, Position{name, 1, 0}
	dashes, last := 0, '\n'
	for _, c := range string(text) {
		at.Column++
		switch c {
		case '\n':
			at.Line, at.Column, dashes = at.Line+1, 0, 0
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		case ' ':
			if last == '-' {
				dashes++
			}
		case '-':
		default:
			dashes = 0
		}
		last = c
		if depth > 100 || dashes > 100 {
			return at, true
		}
	}
	return at, false
}

// quoted matches the parser's quotes from the file, which may be secret.
var quoted = regexp.MustCompile(`:? *"(?:[^"\\]|\\.)*"`)

// syntaxFault converts the parser's error into a fault, without the lines of the file that it quotes.
func syntaxFault(at Position, err error) *Fault {
	what, hint := "it can't be read", "look at this line and the one before it: the indent, the colons, the quotes and the brackets"
	if e, ok := errors.AsType[yaml.Error](err); ok {
		what = quoted.ReplaceAllString(e.GetMessage(), "")
		if t := e.GetToken(); t != nil && t.Position != nil {
			at.Line, at.Column = max(t.Position.Line, 1), max(t.Position.Column, 1)
		}
	}
	for pattern, better := range syntaxHints {
		if regexp.MustCompile(pattern).MatchString(what) {
			hint = better
		}
	}
	return &Fault{Position: at, Message: fmt.Sprintf("not valid YAML: %s: %s", what, hint)}
}

// syntaxHints are hints for the most common mistakes. No message matches two.
var syntaxHints = map[string]string{
	`^found character '\t'`:                  "indent with spaces, not tabs",
	`must be specified$|end token|not found`: "close the bracket, and put a text with { } [ ] , or : inside brackets into double quotes",
	`^mapping value is not allowed`:          "put a text that has a colon and a space into double quotes, or mend the indent of the next line",
	`^could not find end character`:          "close the quotes",
	`is a reserved character$`:               "put the text into double quotes",
}

// Fault is one fault of a configuration file. It never contains the value of a secret.
type Fault struct {
	// Position is where it is; Line is 0 if it concerns the whole file, for example because it does not exist.
	Position
	// Field is the dotted path, such as gateways.stripe.leak.limits[0]. Empty if it concerns no single field.
	Field string
	// Message says what is wrong, then what to do.
	Message string
}

// Error returns file:line:column: field: message.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	if f.Field != "" {
		b.WriteString(": " + f.Field)
	}
	b.WriteString(": " + f.Message)
	return b.String()
}

// Faults are all faults of a configuration file, in file order; as an error it is never empty.
type Faults []*Fault

// Error returns the faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// mostAlike is how many faults of one kind are reported individually.
const mostAlike = 10

// bounded keeps the first of many faults of one kind, and the first of those at one position. The last one kept
// mentions the number of the others.
func (f Faults) bounded() Faults {
	var told Faults
	more, kinds := map[*Fault]int{}, map[string][]*Fault{}
	for _, one := range f {
		kind := one.kind()
		of := kinds[kind]
		if n := len(of); n > 0 && (n == mostAlike || of[n-1].Position == one.Position) {
			more[of[n-1]]++
			continue
		}
		kinds[kind] = append(of, one)
		told = append(told, one)
	}
	for one, n := range more {
		one.Message += " (and " + grouped(n) + " more like it)"
	}
	return told
}

var (
	ofGateway  = regexp.MustCompile(`^gateways\.[^.]*`)
	particular = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\$\{[^}]*\}|[0-9]+`)
)

// kind returns a text that is equal for the same fault at two gateways.
func (f *Fault) kind() string {
	return f.File + "\x00" + ofGateway.ReplaceAllString(f.Field, "") + "\x00" + particular.ReplaceAllString(f.Message, "")
}

// grouped formats a number with commas between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// compare orders positions by file name, then by position in the file.
func (p Position) compare(other Position) int {
	return cmp.Or(cmp.Compare(p.File, other.File), p.Line-other.Line, p.Column-other.Column)
}

// Unwrap returns the faults one by one.
func (f Faults) Unwrap() []error {
	all := make([]error, len(f))
	for i, one := range f {
		all[i] = one
	}
	return all
}
