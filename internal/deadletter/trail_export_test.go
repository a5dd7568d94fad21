package deadletter

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"spillway/internal/testkit"
)

// exported is the trail of a store as a file.
func exported(t *testing.T, s *Store) (lines []string) {
	t.Helper()
	if err := s.ExportTrail(t.Context(), func(l TrailLine) error {
		text, err := json.Marshal(l)
		lines = append(lines, string(text))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return lines
}

func verifiedFile(t *testing.T, known Head, lines ...string) Verified {
	t.Helper()
	all, err := VerifyFile(strings.NewReader(strings.Join(lines, "\n")), known)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	return all[0]
}

// The verification of an exported trail equals that in Redis, and names changes to the file.
func TestAnExportIsVerifiedWithoutRedis(t *testing.T) {
	t.Parallel()
	s := chainedStore(t, 4)
	if err := s.EndAct(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	lines, want := exported(t, s), verified(t, s, Head{})
	if len(lines) != 5+4+1 {
		t.Fatal(lines)
	}
	got := verifiedFile(t, Head{}, lines...)
	if !got.OK || got.Head != want.Head || got.Entries != 4 || got.Before != 4 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := verifiedFile(t, Head{Links: 3, Hash: strings.Repeat("0", 64)}, lines...); got.Faults != 1 || !strings.Contains(got.Findings[0], "link 3 of the chain has the hash") {
		t.Errorf("%+v", got)
	}
	cut := func(from, to int) []string { return append(append([]string{}, lines[:from]...), lines[to:]...) }
	edit := func(at int, old, new string) []string {
		all := append([]string{}, lines...)
		if all[at] = strings.Replace(all[at], old, new, 1); all[at] == lines[at] {
			t.Fatalf("%s has no %s", all[at], old)
		}
		return all
	}
	for what, c := range map[string]struct {
		lines []string
		want  string
	}{
		"the head is cut off":  {cut(9, 10), "it was cut off"},
		"the end is cut off":   {cut(7, 10), "it was cut off"},
		"an entry is taken":    {cut(6, 7), "entry 2 is missing of the trail"},
		"a link is taken":      {cut(2, 3), "link 3 is missing of the chain"},
		"the last link":        {cut(4, 5), "link 5 is missing at the end of the chain"},
		"an entry is changed":  {edit(8, "ada@desk", "eve@desk"), "entry 4 of the trail was changed"},
		"a link is changed":    {edit(0, `\"before\":true,`, ""), "link 1 of the chain was changed"},
		"the head is changed":  {edit(9, "5 4 ", "4 4 "), "its head says 4"},
		"the head is nonsense": {edit(9, "5 4 ", "x 4 "), "can't be read"},
	} {
		if got := verifiedFile(t, Head{}, c.lines...); got.OK || !strings.Contains(strings.Join(got.Findings, "\n"), c.want) {
			t.Errorf("%s: %q, want %s", what, got.Findings, c.want)
		}
	}
	for _, text := range []string{"", "{}", "nonsense", `{"gateway":"g","kind":"joke","n":1}`, `{"gateway":"g","kind":"link","n":1,"more":1}`, lines[9] + "\n" + lines[0]} {
		if all, err := VerifyFile(strings.NewReader(text), Head{}); err == nil {
			t.Errorf("%q: %+v", text, all)
		}
	}
}

// An export is consistent even while others act.
func TestAnExportAmidActsIsWhole(t *testing.T) {
	t.Parallel()
	s := chainedStore(t, 3)
	var file bytes.Buffer
	acts := 0
	if err := s.ExportTrail(t.Context(), func(l TrailLine) error {
		text, err := json.Marshal(l)
		file.Write(append(text, '\n'))
		if l.Kind == trailEntry && acts < 2 { // an entry that was exported already is brought up to date, and another one comes
			acts++
			if err := s.EndAct(t.Context(), 0); err != nil {
				return err
			}
			return s.Entry(Act{Who: "bob", What: "pause"}).Begin(t.Context())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	all, err := VerifyFile(&file, Head{})
	if err != nil || len(all) != 1 || !all[0].OK || all[0].Entries != 5 || all[0].Head.Links != 7 || all[0].Unchained != 0 {
		t.Errorf("%+v %v", all, err)
	}
}

// An entry that is no text is exported as it is.
func TestAnExportHasEveryByte(t *testing.T) {
	t.Parallel()
	s := chainedStore(t, 1)
	if err := s.c.RPush(t.Context(), s.keys.Trail(), "\xff\x00{").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := exported(t, s)
	if got := verifiedFile(t, Head{}, lines...); !got.OK || got.Entries != 2 || !strings.Contains(lines[3], `"base64":"/wB7"`) {
		t.Errorf("%+v: %s", got, lines)
	}
}

// An entry that a program from before the chain overwrote is reported so, and counts as a fault: it can't be told from tampering.
func TestAnEntryThatAnOldProgramEndedIsNamed(t *testing.T) {
	t.Parallel()
	s := New(testkit.Client(t), testkit.Gateway(t))
	if err := s.Entry(Act{Who: "ada", What: "replay", Why: "ticket 1"}).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	line := s.c.LIndex(t.Context(), s.keys.Trail(), 0).Val()
	put := func(text string) Verified {
		t.Helper()
		if err := s.c.LSet(t.Context(), s.keys.Trail(), 0, text).Err(); err != nil {
			t.Fatal(err)
		}
		return verified(t, s, Head{})
	}
	ended := strings.Replace(strings.Replace(line, `"jobs":0`, `"jobs":7`, 1), `"ended":null`, `"ended":"2026-11-26T12:00:00Z"`, 1)
	if ended == line {
		t.Fatal(line)
	}
	if v := put(ended); v.Faults != 1 || !strings.Contains(v.Findings[0], "by a program from before the chain, or by somebody who passes for one") {
		t.Errorf("%+v", v)
	}
	if v := put(strings.Replace(ended, "ada", "eve", 1)); v.Faults != 1 || v.Findings[0] != "entry 1 of the trail was changed" {
		t.Errorf("%+v", v)
	}
	if v := put(line + " "); v.Faults != 1 || v.Findings[0] != "entry 1 of the trail was changed" {
		t.Errorf("%+v", v)
	}
}
