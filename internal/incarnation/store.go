package incarnation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// StateDir returns the directory of this machine's memory: $STATE_DIRECTORY, which systemd sets for StateDirectory=,
// else $XDG_STATE_HOME/spillway, else ~/.local/state/spillway.
func StateDir(getenv func(string) string) (string, error) {
	if dir, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":"); dir != "" {
		return dir, nil
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "spillway"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "spillway"), nil
	}
	return "", errors.New("none of $STATE_DIRECTORY, $XDG_STATE_HOME and $HOME is set")
}

// InMemoryAlone is logged if there is no such directory, or it can't be written to.
const InMemoryAlone = "what is seen of Redis's data is kept in memory alone: after a restart of this process nothing shows that Redis was " +
	"restored from an old snapshot; set STATE_DIRECTORY to a directory that can be written to"

// Store is what this machine has seen of one Redis: a file shared by all its dispatchers. It contains names of gateways
// and of incarnations, times, and the address without user and password. It is safe for concurrent use.
type Store struct {
	mu    sync.Mutex
	path  string
	place string
}

// OpenStore returns the Store for the Redis at place, an address without user and password. It reads and writes nothing
// yet.
func OpenStore(dir, place string) *Store {
	sum := sha256.Sum256([]byte(place))
	return &Store{path: filepath.Join(dir, "redis-"+hex.EncodeToString(sum[:8])+".json"), place: place}
}

// Path returns the path of the file.
func (s *Store) Path() string { return s.path }

// content is the file's content.
type content struct {
	Redis    string            `json:"redis"`
	Gateways map[string]Memory `json:"gateways"`
}

// Recall returns what was seen of each gateway; nothing if there is no file yet.
func (s *Store) Recall() (map[string]Memory, error) {
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s can't be read: %w", s.path, err)
	}
	return c.Gateways, nil
}

// Keep merges what was seen into the file, which is replaced as a whole. Of two memories of one gateway the later one
// is kept, because other dispatchers of this machine write, too. A concurrent writer may be overwritten, and writes
// again the next time. An unreadable file is started afresh.
func (s *Store) Keep(seen map[string]Memory) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, _ := s.Recall()
	all := maps.Clone(before)
	if all == nil {
		all = map[string]Memory{}
	}
	for gateway, m := range seen {
		if m.Line != "" {
			all[gateway] = later(all[gateway], m)
		}
	}
	if maps.Equal(all, before) {
		return nil
	}
	text, err := json.Marshal(content{Redis: s.place, Gateways: all})
	if err != nil {
		return err
	}
	return replace(s.path, append(text, '\n'))
}

// later merges two memories of one gateway. The one that knows the other's incarnation as a past one is later; if
// neither does, ours is.
func later(theirs, ours Memory) Memory {
	a := strings.Fields(theirs.Line)
	if len(a) > 0 && !theirs.sees(ours.Line) && slices.Contains(a, last(strings.Fields(ours.Line))) {
		return ours.with(theirs.Line, theirs.At)
	}
	return theirs.with(ours.Line, ours.At)
}

// replace writes a file so that a crash leaves either the old or the new one.
func replace(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Past is what this machine has seen of the data of all gateways of one Redis. It is safe for concurrent use.
type Past struct {
	mu    sync.Mutex
	seen  map[string]Memory
	named map[string][]string // by incarnation: the gateways in whose data it was seen, sorted by name
}

// NewPast returns a Past with what was seen of each gateway.
func NewPast(seen map[string]Memory) *Past {
	p := &Past{seen: map[string]Memory{}, named: map[string][]string{}}
	for gateway, m := range seen {
		p.Put(gateway, m)
	}
	return p
}

// Of returns what was seen of a gateway, and whether anything was.
func (p *Past) Of(gateway string) (m Memory, known bool) {
	if p == nil {
		return m, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m, known = p.seen[gateway]
	return m, known
}

// Put replaces what was seen of a gateway.
func (p *Past) Put(gateway string, m Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range strings.Fields(p.seen[gateway].Line) {
		p.named[name] = slices.DeleteFunc(p.named[name], func(of string) bool { return of == gateway })
	}
	p.seen[gateway] = m
	for _, name := range strings.Fields(m.Line) {
		at, _ := slices.BinarySearch(p.named[name], gateway)
		p.named[name] = slices.Insert(p.named[name], at, gateway)
	}
}

// others returns what was seen, under names other than the gateway's, of data with one of these incarnations: a renamed
// gateway had one of them. Memories without any of them say nothing about the data.
func (p *Past) others(gateway, line string) []Memory {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name := range strings.FieldsSeq(line) {
		names = append(names, p.named[name]...)
	}
	slices.Sort(names)
	var all []Memory
	for _, of := range slices.Compact(names) {
		if of != gateway {
			all = append(all, p.seen[of])
		}
	}
	return all
}
