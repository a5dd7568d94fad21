package cli

import (
	"errors"
	"io/fs"
	"os"
)

// OpenFile opens the file that a flag names. An error has code usage.
func OpenFile(path, flag string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, wrongFile(path, flag, err)
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		_ = f.Close()
		if err == nil {
			err = errors.New("it is a directory")
		}
		return nil, wrongFile(path, flag, err)
	}
	return f, nil
}

func wrongFile(path, flag string, err error) error {
	hint := "check the path given to " + flag + "; " + flag + " - reads standard input"
	if errors.Is(err, fs.ErrPermission) {
		hint = "ask for the right to read it, or run as a user who may"
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // os repeats the path
	}
	return Usage(hint, "can't read %s: %v", path, err)
}

// Character parses a flag's value that is one character, or the word tab. It returns 0 if the flag is not
// given.
func Character(flag, text string) (byte, error) {
	switch {
	case text == "":
		return 0, nil
	case text == "tab":
		return '\t', nil
	case len(text) > 1:
		return 0, Usage("give one character in quotes, like ';'", "--%s %q is not one character", flag, text)
	}
	return text[0], nil
}
