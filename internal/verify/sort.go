package verify

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// sorter sorts items by key. What does not fit into its memory goes into temporary files. They are unlinked and
// readable only by this process, so that they disappear with it, however it ends.
type sorter struct {
	dir   string
	most  int    // bytes in memory
	bytes []byte // of all items, key before value
	items []item
	runs  []*os.File
}

// item is the position of an item.
type item struct{ at, key, end int }

// itemSize is the approximate size of an item without its bytes.
const itemSize = 24

// runBuffer is how much of a file is read or written at once.
const runBuffer = 64 << 10

func newSorter(dir string, most int) *sorter { return &sorter{dir: dir, most: most} }

func (s *sorter) put(key, value []byte) error {
	if len(s.items) > 0 && len(s.bytes)+len(key)+len(value)+(len(s.items)+1)*itemSize > s.most {
		if err := s.spill(); err != nil {
			return err
		}
	}
	at := len(s.bytes)
	s.bytes = append(append(s.bytes, key...), value...)
	s.items = append(s.items, item{at, at + len(key), len(s.bytes)})
	return nil
}

func (s *sorter) key(i item) []byte   { return s.bytes[i.at:i.key] }
func (s *sorter) value(i item) []byte { return s.bytes[i.key:i.end] }

func (s *sorter) sort() {
	slices.SortFunc(s.items, func(a, b item) int {
		if c := bytes.Compare(s.key(a), s.key(b)); c != 0 {
			return c
		}
		return a.at - b.at
	})
}

func unkept(err error) error {
	return fmt.Errorf("sorting in temporary files; $TMPDIR says where they go: %w", err)
}

// spill writes the items in memory into a file, sorted.
func (s *sorter) spill() error {
	s.sort()
	f, err := os.CreateTemp(s.dir, "verify-*")
	if err != nil {
		return unkept(err)
	}
	_ = os.Remove(f.Name()) // if an open file can't be removed, close does it
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, runBuffer)
	var head []byte
	for _, i := range s.items {
		head = binary.AppendUvarint(binary.AppendUvarint(head[:0], uint64(i.key-i.at)), uint64(i.end-i.key))
		_, _ = w.Write(head) // Flush returns the first error
		_, _ = w.Write(s.bytes[i.at:i.end])
	}
	if err := w.Flush(); err != nil {
		return unkept(err)
	}
	s.bytes, s.items = s.bytes[:0], s.items[:0]
	return nil
}

// each visits all items in key order. Key and value are valid until visit returns. Nothing can be added
// afterwards.
func (s *sorter) each(ctx context.Context, visit func(key, value []byte) error) error {
	if len(s.runs) == 0 {
		s.sort()
		for n, i := range s.items {
			if n%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if err := visit(s.key(i), s.value(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.bytes, s.items = nil, nil
	return s.merge(ctx, visit)
}

func (s *sorter) merge(ctx context.Context, visit func(key, value []byte) error) error {
	var runs runHeap
	for n, f := range s.runs {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return unkept(err)
		}
		r := &runReader{number: n, in: bufio.NewReaderSize(f, runBuffer)}
		switch err := r.next(); {
		case err == nil:
			runs = append(runs, r)
		case !errors.Is(err, io.EOF):
			return unkept(err)
		}
	}
	heap.Init(&runs)
	for n := 0; len(runs) > 0; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r := runs[0]
		if err := visit(r.key, r.value); err != nil {
			return err
		}
		switch err := r.next(); {
		case err == nil:
			heap.Fix(&runs, 0)
		case errors.Is(err, io.EOF):
			heap.Pop(&runs)
		default:
			return unkept(err)
		}
	}
	return nil
}

// close frees files and memory.
func (s *sorter) close() {
	s.bytes, s.items = nil, nil
	for _, f := range s.runs {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	s.runs = nil
}

// runReader reads one file.
type runReader struct {
	number     int
	in         *bufio.Reader
	bytes      []byte
	key, value []byte
}

// next reads the next item. At the end of the file it returns io.EOF.
func (r *runReader) next() error {
	key, err := binary.ReadUvarint(r.in)
	if err != nil {
		return err
	}
	value, err := binary.ReadUvarint(r.in)
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	r.bytes = slices.Grow(r.bytes[:0], int(key+value))[:key+value]
	if _, err := io.ReadFull(r.in, r.bytes); err != nil {
		return io.ErrUnexpectedEOF
	}
	r.key, r.value = r.bytes[:key], r.bytes[key:]
	return nil
}

// runHeap orders files by their lowest key.
type runHeap []*runReader

func (h runHeap) Len() int      { return len(h) }
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Less keeps equal items in the order in which they were added.
func (h runHeap) Less(i, j int) bool {
	if c := bytes.Compare(h[i].key, h[j].key); c != 0 {
		return c < 0
	}
	return h[i].number < h[j].number
}

// Push is for container/heap, and is not used.
func (h *runHeap) Push(x any) { *h = append(*h, x.(*runReader)) }

// Pop removes the last one.
func (h *runHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// packed is encoded values, concatenated.
type packed []byte

func (p packed) text(s string) packed { return append(binary.AppendUvarint(p, uint64(len(s))), s...) }
func (p packed) int(n int64) packed   { return binary.AppendVarint(p, n) }

// sorted appends a number so that bytes compare like the numbers.
func (p packed) sorted(n int64) packed { return binary.BigEndian.AppendUint64(p, uint64(n)^(1<<63)) }

// number returns the i-th of the numbers that sorted appended.
func number(b []byte, i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:]) ^ (1 << 63)) }

// takeText removes a text from the front. The encoding is our own, so no length can be wrong.
func (p *packed) takeText() string {
	n, size := binary.Uvarint(*p)
	s := string((*p)[size : size+int(n)])
	*p = (*p)[size+int(n):]
	return s
}

func (p *packed) takeInt() int64 {
	n, size := binary.Varint(*p)
	*p = (*p)[size:]
	return n
}
