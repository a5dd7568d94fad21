package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"spillway/internal/job"
)

// raw returns a scalar's text as in the file, without quotes. Numbers and words like true are texts, too.
func raw(n node) (string, bool) {
	switch tree := n.tree.(type) {
	case *ast.StringNode:
		return tree.Value, true
	case *cell:
		return tree.Value, true
	case *ast.LiteralNode:
		return tree.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return tree.GetToken().Value, true
	}
	return "", false
}

// filled is raw with the gateway's name and columns filled in as far as possible.
func (r *reader) filled(n node) (string, bool) {
	text, ok := raw(n)
	if ok {
		text, _, _ = r.subject.fill(text)
	}
	return text, ok
}

// text returns a scalar with its variables expanded. It reports faults; false = no usable text.
func (r *reader) text(n node) (string, bool) {
	raw, ok := raw(n)
	if !ok {
		r.unfit(n, "a single value", "write one, such as a text or a number")
		return "", false
	}
	plain, from, rule := r.subject.fill(raw)
	if from.Line > 0 {
		r.places[n.path] = from // a fault of the text is probably there
	}
	if rule != "" {
		r.fault(n.path, "%s %s", r.asWritten(n), rule)
		return "", false
	}
	text, unset, rule := expand(plain, r.lookUp)
	switch {
	case rule != "":
		r.wrong(n, rule)
		return "", false
	case unset != nil && n.optional:
		r.unset[n.path] = true
		return "", false
	case unset != nil:
		for _, u := range unset {
			r.fault(n.path, "${%s} %s", u.name, u.state)
		}
		return "", false
	}
	return text, true
}

// wrong reports a scalar: its text as in the file, followed by the rule that it breaks and a hint.
func (r *reader) wrong(n node, rule string) { r.fault(n.path, "%s %s", r.shown(n), rule) }

// maxShown is how much of a text a message shows, in bytes.
const maxShown = 80

// shown returns a scalar's text for a message, without expanding its variables. If it may be secret, only the
// names of its variables are shown.
func (r *reader) shown(n node) string {
	text, _ := r.filled(n)
	return show(text, n.hidden)
}

// asWritten is shown, without filling in anything.
func (r *reader) asWritten(n node) string {
	text, _ := raw(n)
	return show(text, n.hidden)
}

func show(raw string, hidden bool) string {
	if hidden && raw != "" {
		raw = strings.Join(variable.FindAllString(raw, -1), "")
		if raw == "" {
			return mask
		}
	}
	if strings.Contains(raw, "://") {
		raw = RedactURL(raw)
	}
	if len(raw) > maxShown {
		raw = strings.ToValidUTF8(raw[:maxShown], "") + "…"
	}
	return strconv.Quote(raw)
}

const named = `\{(?:[A-Za-z_][A-Za-z0-9_]*|file:[^{}]+)\}`

var variable = regexp.MustCompile(`\$` + named)

var reference = regexp.MustCompile(`\$(?:\$|` + named + `|)`)

// unset is a variable or file without a value: why, and what to do.
type unset struct{ name, state string }

// expand replaces ${NAME} by the variable's value, ${file:PATH} by the file's contents, and $$ by $. It returns
// those without a value, or the rule that the text breaks.
func expand(raw string, lookUp func(string) (value, state string)) (text string, missing []unset, rule string) {
	text = reference.ReplaceAllStringFunc(raw, func(ref string) string {
		switch ref {
		case "$":
			rule = "has a $ that begins no variable: write ${NAME} for a variable, $$ for a dollar sign"
			return ""
		case "$$":
			return "$"
		}
		name := ref[2 : len(ref)-1]
		value, state := lookUp(name)
		if u := (unset{name, state}); value == "" && !slices.Contains(missing, u) {
			missing = append(missing, u)
		}
		return value
	})
	return text, missing, rule
}

// word reads a text into dst if it is valid: check returns what follows the value in the message, or "".
func (r *reader) word(dst *string, check func(string) string) func(node) {
	return func(n node) {
		text, ok := r.text(n)
		if !ok {
			return
		}
		if rule := check(text); rule != "" {
			r.wrong(n, rule)
			return
		}
		*dst = text
	}
}

// words reads a list of words. check returns what is wrong with one, or "". Invalid and repeated ones are
// reported and left out.
func (r *reader) words(n node, hint string, check func(string) string) (all []string) {
	for _, item := range r.items(n, hint) {
		var text string
		r.word(&text, check)(item)
		switch {
		case text == "":
		case slices.Contains(all, text):
			r.fault(item.path, "%q is there twice: keep one of them", text)
		default:
			all = append(all, text)
		}
	}
	return all
}

// secret reads a text that messages must not show.
func (r *reader) secret(dst *Secret, check func(string) string) func(node) {
	return func(n node) {
		n.hidden = true
		var text string
		r.word(&text, check)(n)
		*dst = Secret(text)
	}
}

// duration reads a duration of at least least.
func (r *reader) duration(dst *time.Duration, least time.Duration) func(node) {
	return func(n node) {
		text, ok := r.text(n)
		if !ok {
			return
		}
		d, rule := job.ReadDuration(text)
		if rule == "" && d < least {
			rule = "is too short: give at least " + job.FormatDuration(least)
		}
		if rule != "" {
			r.wrong(n, rule)
			return
		}
		*dst = d
	}
}

// count reads a whole number from least to most.
func (r *reader) count(dst *int64, least, most int64) func(node) {
	return func(n node) {
		text, ok := r.text(n)
		if !ok {
			return
		}
		rule := "is not a number: write a whole one from " + strconv.FormatInt(least, 10)
		if most != job.MaxCount {
			rule += " to " + strconv.FormatInt(most, 10)
		}
		switch v, err := strconv.ParseInt(text, 10, 64); {
		case !job.Digits(strings.TrimPrefix(text, "-")):
			r.wrong(n, rule)
		case err != nil || v > most:
			r.wrong(n, "is too large: give at most "+strconv.FormatInt(most, 10))
		case v < least:
			r.wrong(n, "is too small: give at least "+strconv.FormatInt(least, 10))
		default:
			*dst = v
		}
	}
}

// size reads a number of bytes: 512MiB, 4GiB, or a plain number. The units are powers of 1024.
func (r *reader) size(dst *int64) func(node) {
	return func(n node) {
		text, ok := r.text(n)
		if !ok {
			return
		}
		switch v, err := units.RAMInBytes(text); {
		case err != nil || v < 0 || v == 0 && text != "0": // "0.5" must not become 0, which means no bound
			r.wrong(n, "is not a size: write it like 512MiB or 4GiB")
		case v > job.MaxCount:
			r.wrong(n, "is too large: give at most "+units.BytesSize(job.MaxCount))
		default:
			*dst = v
		}
	}
}

// maxLimits is the most limits that the pacer and admission support.
const maxLimits = 8

// limits reads a list of limits.
func (r *reader) limits(dst *[]job.Limit) func(node) {
	return func(n node) {
		const hint = "write at least one limit, like [100/s] or [100/s, 5000/m]"
		items := r.items(n, hint)
		if len(items) > maxLimits {
			r.fault(n.path, "%d limits are too many: keep the %d that bind", len(items), maxLimits)
		}
		for _, item := range items {
			text, ok := r.text(item)
			if !ok {
				continue
			}
			l, rule := job.ReadLimit(text)
			if rule == "" {
				rule = sameWindow(l, *dst)
			}
			if rule != "" {
				r.wrong(item, rule)
				continue
			}
			*dst = append(*dst, l)
		}
	}
}

func sameWindow(l job.Limit, others []job.Limit) string {
	for _, o := range others {
		if o.Window == l.Window {
			return "has the same window as " + o.String() + ": keep the lower of the two"
		}
	}
	return ""
}

// choice returns a check that a text is one of the words.
func choice[T ~string](what string, allowed ...T) func(string) string {
	words := job.Texts(allowed)
	return func(text string) string {
		if slices.Contains(words, text) {
			return ""
		}
		if near, ok := job.Nearest(text, words); ok {
			return "is not " + what + ": did you mean " + near + "?"
		}
		return "is not " + what + ": use one of " + strings.Join(words, ", ")
	}
}

// isNull reports an explicit null: null or ~, not merely an empty value.
func isNull(n node) bool {
	tree, ok := n.tree.(*ast.NullNode)
	return ok && tree.GetToken().Type != token.ImplicitNullType
}
