package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// lockedFor is how long another command may have the logins to itself: it may be asking the provider, twice.
	lockedFor = 30 * time.Second
	// lockAgain is how long it is from one try to have them to the next.
	lockAgain = 20 * time.Millisecond
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
func (k Kept) Keep(ctx context.Context, server string, s Saved) error {
	return k.change(ctx, func(all map[string]Saved) { all[server] = s })
}

// Drop forgets one.
func (k Kept) Drop(ctx context.Context, server string) error {
	return k.change(ctx, func(all map[string]Saved) { delete(all, server) })
}

// Renew returns the login at a dispatcher, after replacing it if it ends within ahead. Of several commands that do so at once, one asks the provider and the others take what it got:
// a refresh token is good once, and some providers end the whole login when it is shown twice. unkept is why it could not be kept. Where nobody is logged in any more it is empty.
// The error is an *Error, or that the logins can't be had.
func (k Kept) Renew(ctx context.Context, server string, ahead time.Duration) (s Saved, unkept, err error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return s, nil, err
	}
	defer unlock()
	all, err := k.read()
	s, is := all[server]
	if err != nil || !is || time.Until(s.Ends) > ahead {
		return s, nil, err
	}
	next, err := s.Again(ctx)
	if err != nil {
		return s, nil, err
	}
	all[server] = next
	return next, k.write(all), nil
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

// change reads the logins, changes them and writes them, while no other command does.
func (k Kept) change(ctx context.Context, do func(map[string]Saved)) error {
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return err
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := k.read()
	if err != nil {
		return err
	}
	if all == nil {
		all = map[string]Saved{}
	}
	do(all)
	return k.write(all)
}

// lock has the logins for this command alone until it calls unlock, or ends. A directory that can't be locked, as on some network file systems, is used without.
func (k Kept) lock(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(k.file))
	if err != nil {
		return func() {}, nil // what is done next says what is wrong with it
	}
	for until := time.Now().Add(lockedFor); held(dir); {
		if time.Now().After(until) {
			return nil, errors.Join(fmt.Errorf("another dispatcher command has had %s for %s: try again", k.file, lockedFor), dir.Close())
		}
		select {
		case <-time.After(lockAgain):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), dir.Close())
		}
	}
	return func() { _ = dir.Close() }, nil // the lock goes with it
}

// write writes the file anew beside the old one, so that it is never half written nor readable for others.
func (k Kept) write(all map[string]Saved) error {
	to, err := os.CreateTemp(filepath.Dir(k.file), ".logins-*") // 0600
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
