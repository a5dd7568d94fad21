package config

import (
	"fmt"
	"os"
	"strings"

	"spillway/internal/job"
)

// FlagSecret returns the text of a flag with ${NAME} and ${file:PATH} filled in, as the file has it: what is secret then stands neither in the list of processes nor in a shell's history.
// A relative PATH counts from where the command runs. The error has the code usage, and no part of what is secret.
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
