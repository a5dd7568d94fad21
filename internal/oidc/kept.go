package oidc

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Kept are the logins of a person's command line, by the dispatchers' addresses, in one file that only that person can read.
type Kept struct{ file string }

// KeptIn returns the logins that a directory of a person's settings has.
func KeptIn(dir string) Kept { return Kept{filepath.Join(dir, "spillway", "logins.json")} }

// File is where they are.
func (k Kept) File() string { return k.file }

// Of returns the login at a dispatcher, and whether there is one.
func (k Kept) Of(server string) (s Saved, is bool, err error) {
	all, err := k.read()
	s, is = all[server]
	return s, is, err
}

// Keep keeps a login, in the place of an earlier one.
func (k Kept) Keep(server string, s Saved) error {
	return k.change(func(all map[string]Saved) { all[server] = s })
}

// Drop forgets one.
func (k Kept) Drop(server string) error {
	return k.change(func(all map[string]Saved) { delete(all, server) })
}

func (k Kept) read() (all map[string]Saved, err error) {
	text, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &all) != nil {
		return nil, errors.New(k.file + " can't be read: delete it, and log in again")
	}
	return all, nil
}

// change writes the file anew beside the old one, so that it is never half written nor readable for others.
func (k Kept) change(do func(map[string]Saved)) error {
	all, err := k.read()
	if err != nil {
		return err
	}
	if all == nil {
		all = map[string]Saved{}
	}
	do(all)
	dir := filepath.Dir(k.file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	to, err := os.CreateTemp(dir, ".logins-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // it is gone if all went well
	_, err = to.Write(marshal(all))
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), k.file)
}
