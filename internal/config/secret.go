package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// mask replaces a secret in any output.
const mask = "<secret>"

// Secret is a text that is hidden in printed text, logs, JSON and YAML. The empty Secret is shown as such.
type Secret string

// Reveal returns the text itself: to be sent, never to be shown.
func (s Secret) Reveal() string { return string(s) }

// String returns <secret>, or "" for the empty Secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// Format hides the text from every verb, %x and %d included.
func (s Secret) Format(f fmt.State, verb rune) {
	switch {
	case verb == 'v' && f.Flag('#'):
		fmt.Fprint(f, s.GoString())
	case verb == 'q':
		fmt.Fprintf(f, "%q", s.String())
	default:
		fmt.Fprint(f, s.String())
	}
}

// MarshalText hides the text from JSON and XML. (A map key of this type would show, because JSON uses string
// keys as they are.)
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML hides the text from YAML.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue hides the text from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var passwordParameter = regexp.MustCompile(`(?i)([?&][^=&#]*(?:pass|secret|token|key)[^=&#]*=)[^&#]*`)

// RedactURL returns the URL with anything that may be a password masked, whatever its form: even if it can't be
// parsed, has several hosts, or has an unescaped / or @ in its password.
func RedactURL(raw string) string {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "", raw
	} else {
		scheme += "://"
	}
	user, host := "", rest
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, host = redactUser(rest[:at]), rest[at:]
	}
	return scheme + user + passwordParameter.ReplaceAllString(host, "${1}"+mask)
}

// redactUser masks what precedes the @. A single word there may be a password whose colon was forgotten.
func redactUser(user string) string {
	name, _, hasPassword := strings.Cut(user, ":")
	if !hasPassword {
		return mask
	}
	return name + ":" + mask
}

// FlagSecret returns the value of a flag with ${NAME} and ${file:PATH} expanded, as in the file. With these, a
// secret is neither in the process list nor in a shell's history. A relative PATH is relative to the working
// directory. The error has code usage, and contains nothing secret.
func FlagSecret(flag, text string) (Secret, error) {
	r := &reader{opt: Options{Env: os.LookupEnv}}
	filled, unset, rule := expand(text, r.lookUp)
	switch {
	case rule != "":
		return "", &job.Error{Code: job.CodeUsage, Message: flag + " " + rule}
	case len(unset) > 0:
		var all []string
		for _, u := range unset {
			all = append(all, fmt.Sprintf("${%s} %s", u.name, u.state))
		}
		return "", &job.Error{Code: job.CodeUsage, Message: flag + ": " + strings.Join(all, "; ")}
	}
	return Secret(filled), nil
}

// maxSecretFile is the largest file with a value, a certificate or a key, in bytes.
const maxSecretFile = 1 << 20

// lookUp returns the value of a name between ${ and }: an environment variable, or the contents of a file
// without trailing line ends. If it is missing or empty (compose files make empty variables of unset ones),
// state says so and what to do.
func (r *reader) lookUp(name string) (value, state string) {
	path, isFile := strings.CutPrefix(name, "file:")
	if !isFile {
		return r.variable(name)
	}
	r.files = append(r.files, r.absolute(path))
	text, err := r.contents(path, maxSecretFile)
	if err != nil {
		return "", "can't be read: " + reason(err) + ": name a file that the user of this command may read"
	}
	if value = strings.TrimRight(text, "\r\n"); value == "" {
		return "", "is empty: write the secret into the file"
	}
	return value, ""
}

func (r *reader) variable(name string) (value, state string) {
	value, ok := r.opt.Env(name)
	switch {
	case !ok:
		state = "is not set: set it in the environment of this command"
	case value == "":
		state = "is empty: set it in the environment of this command"
	}
	return value, state
}

// contents returns the contents of a file. A relative path is relative to the directory of the configuration
// file.
func (r *reader) contents(path string, most int64) (string, error) {
	if info, err := os.Stat(r.absolute(path)); err == nil && !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file") // a pipe may never deliver anything, and is empty when read again
	}
	f, err := os.Open(r.absolute(path))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it is larger than %d MiB", most>>20) // a truncated key would be wrong, and certificates would be missing
	}
	return string(text), err
}

func (r *reader) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(r.file), path)
}

// Written returns the gateways with these names, or all, as YAML in expanded form: the defaults, the template,
// the gateway's own keys and its line of a merchants file merged. Keys that are in none of them are omitted.
// Variables are not expanded, and secrets are shown as <secret>.
func Written(path string, names []string) ([]byte, error) {
	var all yaml.MapSlice
	_, err := Load(path, Options{written: func(name string, keys any) {
		if len(names) == 0 || slices.Contains(names, name) {
			all = append(all, yaml.MapItem{Key: name, Value: keys})
		}
	}})
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(yaml.MapSlice{{Key: "gateways", Value: all}})
}

// AsJSON returns the same document as one line of JSON.
func AsJSON(document []byte) ([]byte, error) { return yaml.YAMLToJSON(document) }

// secrets are the keys of a gateway whose text may be secret even without a variable.
var secrets = []string{"request.headers.", "request.proxy", "request.sign.secret", "request.sign.private_key", "request.oauth2.client_secret"}

// inRoute matches the start of the path of a route's key.
var inRoute = regexp.MustCompile(`^routes\.[^.]+\.`)

// writtenOut returns a node as a value for YAML, with the gateway's values filled in.
func (r *reader) writtenOut(n node) any {
	switch tree := n.tree.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		all := yaml.MapSlice{}
		for _, pair := range pairs(tree) {
			key, _ := keyText(pair.Key)
			if path := strings.TrimPrefix(n.path+"."+key, "."); path != "like" {
				all = append(all, yaml.MapItem{Key: key, Value: r.writtenOut(node{tree: pair.Value, path: path})})
			}
		}
		return all
	case *ast.SequenceNode:
		all := make([]any, len(tree.Values))
		for i, one := range tree.Values {
			all[i] = r.writtenOut(node{tree: one, path: n.path})
		}
		return all
	}
	return r.writtenScalar(n)
}

func (r *reader) writtenScalar(n node) any {
	switch tree := n.tree.(type) {
	case *ast.IntegerNode:
		return tree.GetValue()
	case *ast.FloatNode:
		return tree.GetValue()
	case *ast.BoolNode:
		return tree.Value
	case *ast.NullNode, nil:
		return nil
	}
	text, _ := r.filled(n)
	path := inRoute.ReplaceAllString(n.path, "")
	if slices.ContainsFunc(secrets, func(key string) bool { return strings.HasPrefix(path, key) }) && text != "" {
		if refs := variable.FindAllString(text, -1); len(refs) > 0 {
			return strings.Join(refs, "")
		}
		return mask
	}
	if strings.Contains(text, "://") || strings.HasPrefix(path, "lookup.") && strings.HasSuffix(path, ".url") {
		return RedactURL(text)
	}
	if c, ok := n.tree.(*cell); ok && strings.HasSuffix(n.path, "limits") {
		return c.words()
	}
	return text
}
