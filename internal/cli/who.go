package cli

import (
	"errors"
	"os"
	"os/user"
)

// WhoAmI returns who acts, for the audit trail: user@host, with the user behind a sudo.
func WhoAmI() (string, error) {
	name := os.Getenv("SUDO_USER")
	if name == "" {
		u, err := user.Current()
		if err != nil {
			return "", errors.Join(errors.New("your user name is unknown, and it has to be recorded: set $SUDO_USER"), err)
		}
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name, nil // the name alone is enough
	}
	return name + "@" + host, nil
}
