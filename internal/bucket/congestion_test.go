package bucket

import (
	"testing"

	"spillway/internal/job"
)

const planned = 40

// fill adds n slots to the slots in hand at a moment. They are short.
func (c *congestion) fill(from *int64, n, since int64) (slots []job.Slot) {
	for range n {
		*from++
		s := job.Slot{Number: *from}
		c.start(s, since, true)
		slots = append(slots, s)
	}
	return slots
}

// round reserves as many slots as there is room for, 80 at most; passing of ten slots pass. It returns how many there was room for.
func (c *congestion) round(from *int64, passing int) int64 {
	n, _ := c.room(0, 1, planned)
	for _, s := range c.fill(from, min(n, 2*planned), 0) {
		if s.Number%10 < int64(passing) {
			c.unused(s, true, planned)
		} else {
			c.inTime(s)
		}
	}
	return n
}

func TestFewerSlotsAreInHandWhereTheyPass(t *testing.T) {
	t.Parallel()
	var nth int64
	c := newCongestion()
	if n := c.round(&nth, 0); n < 2*planned {
		t.Fatalf("room for %d before a slot has passed", n)
	}
	for range 50 {
		c.round(&nth, 1)
	}
	if n := c.round(&nth, 1); n < planned-4 {
		t.Errorf("room for %d where one of ten passes", n)
	}
	for range 10 {
		c.round(&nth, 9)
	}
	if n := c.round(&nth, 10); n > 2 {
		t.Errorf("room for %d where nine of ten pass", n)
	}
	rounds := 0
	for ; c.round(&nth, 0) < planned; rounds++ {
		if rounds > 25 {
			t.Fatalf("the bound is still %v less", c.less)
		}
	}
}

// Two kinds of slots say nothing about this machine: those that were given back in time, and those whose jobs were ready in time and had to wait for their connections.
func TestSlotsThatPassForOtherReasonsChangeNothing(t *testing.T) {
	t.Parallel()
	var nth int64
	c := newCongestion()
	for i, s := range c.fill(&nth, 16, 0) {
		if i%2 == 0 {
			c.inTime(s)
			c.unused(s, true, planned)
		} else {
			c.unused(s, false, planned)
			c.unused(s, true, planned) // again
		}
	}
	if c.less != 0 || len(c.hand) > 0 {
		t.Errorf("the bound is %v less, with %d in hand", c.less, len(c.hand))
	}
}

// A bound that was never reached does not rise: it is unknown whether more slots would pass.
func TestUseOfFewSlotsDoesNotRaiseTheBound(t *testing.T) {
	t.Parallel()
	c := newCongestion()
	c.less = 20
	for nth := range int64(100) {
		s := job.Slot{Number: nth}
		c.start(s, 0, false)
		c.inTime(s)
	}
	if c.less != 20 {
		t.Errorf("the bound is %v less", c.less)
	}
}

// A slot that is never reported again, as after a call that ended without a word, leaves the hand after a while.
func TestSlotsThatStrayLeaveTheHand(t *testing.T) {
	t.Parallel()
	var nth int64
	c := newCongestion()
	c.less = planned - 1
	c.fill(&nth, 1, 1000)
	if n, _ := c.room(1000+strayed, 1, planned); n != 0 {
		t.Errorf("room for %d beside one in hand", n)
	}
	if n, _ := c.room(1001+strayed, 1, planned); n != 1 {
		t.Errorf("room for %d when it is long past", n)
	}
}

// A limit that is lowered live has a smaller bound of its own. What was taken from the bound of a high limit is not owed.
func TestALowerLimitOwesNothingOfAHigherOne(t *testing.T) {
	t.Parallel()
	var nth int64
	c := newCongestion()
	c.less = 380
	if n, _ := c.room(0, 1, planned); n != 1 {
		t.Fatalf("room for %d", n)
	}
	for range 8 {
		c.round(&nth, 0)
	}
	if n, _ := c.room(0, 1, planned); n < 5 {
		t.Errorf("room for %d after eight rounds", n)
	}
}

// If Redis is far away, or another program takes the processor, fewer slots may not help. As many remain as come while Redis answers.
func TestTheLowestBoundIsWhatComesWhileRedisAnswers(t *testing.T) {
	t.Parallel()
	c := newCongestion()
	c.less = planned - 1
	if n, _ := c.room(0, 7, planned); n != 7 {
		t.Errorf("room for %d, want 7", n)
	}
	if n, _ := c.room(0, 1000, planned); n != planned {
		t.Errorf("room for %d, want %d", n, planned)
	}
}
