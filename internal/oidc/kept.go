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
	// lockedFor is how long another command may hold the lock: it may ask the provider twice.
	lockedFor = 30 * time.Second
	// lockAgain is the pause between two tries to get the lock.
	lockAgain = 20 * time.Millisecond
)

// Kept are a user's command-line logins, by dispatcher address, in a file that only that user can read.
type Kept struct{ file string }

// KeptIn returns the logins in a directory of user settings.
func KeptIn(dir string) Kept { return Kept{filepath.Join(dir, "spillway", "logins.json")} }

// File returns the path of the file.
func (k Kept) File() string { return k.file }

// Of returns the login at a dispatcher, and whether there is one.
func (k Kept) Of(server string) (s Saved, is bool, err error) {
	all, err := k.read()
	s, is = all[server]
	return s, is, err
}

// Keep stores a login, replacing an earlier one.
func (k Kept) Keep(ctx context.Context, server string, s Saved) error {
	return k.change(ctx, func(all map[string]Saved) { all[server] = s })
}

// Drop removes a login.
func (k Kept) Drop(ctx context.Context, server string) error {
	return k.change(ctx, func(all map[string]Saved) { delete(all, server) })
}

// Renew returns the login at a dispatcher, and renews it if it expires within ahead. Of several concurrent
// commands, one asks the provider and the others use its result: a refresh token is valid once, and some
// providers end the whole login if it is used twice. unkept is why the result could not be stored. If there is
// no login, s is empty. The error is an *Error, or that the logins can't be read.
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

// change reads, changes and writes the logins under the lock.
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

// lock locks the logins until unlock is called or the process ends. A directory that can't be locked, as on
// some network file systems, is used without a lock.
func (k Kept) lock(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(k.file))
	if err != nil {
		return func() {}, nil // the next step reports what is wrong with it
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
	return func() { _ = dir.Close() }, nil // closing it releases the lock
}

// write writes a new file and renames it over the old one, so that it is never incomplete or readable for
// others.
func (k Kept) write(all map[string]Saved) error {
	to, err := os.CreateTemp(filepath.Dir(k.file), ".logins-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // fails if all went well
	_, err = to.Write(marshal(all))
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), k.file)
}
