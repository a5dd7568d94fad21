package config

import (
	"fmt"
	"os"
	"strings"

	"spillway/internal/job"
)

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
