package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"spillway/internal/job"
)

// Usage returns an error that says what was wrong with the request (exit 2) and what to do.
func Usage(hint, format string, args ...any) error {
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// PrintError writes "name: what is wrong" and, if there is one, "hint: what to do". Joined errors take one line
// each; a hint that several share is written once, after the last of them. For nil it writes nothing.
func PrintError(w io.Writer, name string, err error) {
	var lines, hints []string
	for _, e := range flatten(err) {
		first, rest, more := strings.Cut(printable(e.Error()), "\n")
		lines = append(lines, name+": "+first)
		if more {
			lines = append(lines, "  "+strings.ReplaceAll(rest, "\n", "\n  "))
		}
		if hint := hintOf(e); hint != "" && (len(hints) == 0 || hints[len(hints)-1] != hint) {
			hints = append(hints, hint)
		}
	}
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	for _, h := range hints {
		fmt.Fprintln(w, "hint: "+printable(h))
	}
}

// flatten returns the errors that err joins, or err alone.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	parts := joined.Unwrap()
	// fmt.Errorf with two %w also unwraps to a list, but its text says more than its parts do.
	if texts := joinedText(parts); err.Error() != texts {
		return []error{err}
	}
	var all []error
	for _, e := range parts {
		all = append(all, flatten(e)...)
	}
	return all
}

func joinedText(parts []error) string {
	texts := make([]string, len(parts))
	for i, e := range parts {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "\n")
}

// hintOf returns the outermost hint in err's chain.
func hintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*job.Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// printable replaces characters that could move a terminal's cursor or reverse text, except line ends.
func printable(s string) string {
	return strings.NewReplacer("\t", " ", joint, " ").Replace(plain(strings.TrimRight(s, "\n")))
}

// plain is printable, but also keeps tabs and joints.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && string(r) != joint && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// CodeEach gives each of the errors that err joins the code, unless it has one. Nil stays nil.
func CodeEach(code job.Code, hint string, err error) error {
	parts := flatten(err)
	for i, e := range parts {
		if !isCoded(e) {
			parts[i] = &job.Error{Code: code, Message: e.Error(), Hint: hint}
		}
	}
	return errors.Join(parts...)
}
