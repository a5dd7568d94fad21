package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

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
