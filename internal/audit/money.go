package audit

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// parkedBooks are the stored sums of parked jobs, read at one moment.
type parkedBooks struct {
	money map[string]string // the hash of the money
	bytes map[string]string // the counters of payload bytes, and the time of the last parking: while that is unchanged, nothing was parked
}

const stampField = "stamp"

func bytesField(r job.Reason) string {
	return "b:" + record.Place{State: job.Parked, Reason: r}.Field()
}

func (c *batchCheck) readParked(ctx context.Context) (p parkedBooks, err error) {
	fields := []string{stampField}
	for _, r := range job.Reasons() {
		fields = append(fields, bytesField(r))
	}
	var money *redis.MapStringStringCmd
	var bytes *redis.SliceCmd
	if _, err = c.g.c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		money, bytes = tx.HGetAll(ctx, c.g.keys.Money()), tx.HMGet(ctx, c.g.keys.Counters(), fields...)
		return nil
	}); err != nil {
		return p, err
	}
	p.money, p.bytes = money.Val(), map[string]string{}
	for i, v := range bytes.Val() {
		if text, ok := v.(string); ok {
			p.bytes[fields[i]] = text
		}
	}
	return p, nil
}

// places returns the stored sums.
func (p parkedBooks) places() (map[record.Place]job.Totals, error) {
	books, err := record.ParseBatch(p.money)
	if err != nil {
		return nil, err
	}
	for _, r := range job.Reasons() {
		text, ok := p.bytes[bytesField(r)]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the field %s holds no number", bytesField(r))
		}
		place := record.Place{State: job.Parked, Reason: r}
		s := books.Places[place]
		s.Bytes = n
		books.Places[place] = s
	}
	return books.Places, nil
}

// money compares the sums of parked jobs, money and bytes, with the records. While jobs come and go constantly, no
// consistent count is possible, and nothing is found.
func (c *batchCheck) money(ctx context.Context) error {
	for range recountTries {
		before, err := c.readParked(ctx)
		if err != nil {
			return err
		}
		counted, err := c.recountMoney(ctx)
		if err != nil {
			return err
		}
		after, err := c.readParked(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(before.money, after.money) || !maps.Equal(before.bytes, after.bytes) {
			continue
		}
		return c.judgeMoney(ctx, after, counted)
	}
	return nil
}

// judgeMoney rewrites wrong sums, or reports them.
func (c *batchCheck) judgeMoney(ctx context.Context, read parkedBooks, is map[record.Place]job.Totals) error {
	has, err := read.places()
	if err != nil {
		return err
	}
	wrong := ""
	for _, r := range job.Reasons() {
		if p := (record.Place{State: job.Parked, Reason: r}); wrong == "" && !has[p].Equal(is[p]) {
			wrong = fmt.Sprintf("the sums of what is parked as %s are %s, those of its records %s", r, moneyText(has[p]), moneyText(is[p]))
		}
	}
	if wrong == "" {
		return nil
	}
	if c.repair {
		written, err := c.writeParked(ctx, read, is)
		if err != nil || written {
			return err
		}
	}
	c.found(Finding{What: MoneyBooks, Where: "money", Text: wrong})
	return nil
}

// writeParked rewrites the sums, and reports whether they were still as read.
func (c *batchCheck) writeParked(ctx context.Context, read parkedBooks, is map[record.Place]job.Totals) (bool, error) {
	money, bytes := map[string]int64{}, map[string]int64{}
	for p, s := range is {
		record.LayOut(s, p, money)
		delete(money, "n:"+p.Field()) // these sums have no number of jobs
		if s.Bytes > 0 {
			bytes[bytesField(p.Reason)] = s.Bytes
		}
	}
	written, err := c.write(ctx, c.g.keys.Counters(), c.g.keys.Counters(), read.bytes, false, bytes)
	if err != nil || !written {
		return false, err
	}
	return c.write(ctx, c.g.keys.Money(), c.g.keys.Money(), read.money, true, money)
}

// recountMoney adds up the money and the bytes of all parked jobs. Jobs stays zero, as in the stored sums.
func (c *batchCheck) recountMoney(ctx context.Context) (map[record.Place]job.Totals, error) {
	counted := map[record.Place]job.Totals{}
	for _, r := range job.Reasons() {
		from := "-inf"
		for from != "" {
			s, next, err := c.moneyPage(ctx, r, from)
			if err != nil {
				return nil, err
			}
			p := record.Place{State: job.Parked, Reason: r}
			sum := counted[p]
			sum.Add(s)
			counted[p], from = sum, next
			if err := c.step(ctx); err != nil {
				return nil, err
			}
		}
	}
	return counted, nil
}

// moneyPage adds up one page of the jobs parked for a reason; next is the start of the following one, empty after
// the last.
func (c *batchCheck) moneyPage(ctx context.Context, r job.Reason, from string) (sum job.Totals, next string, err error) {
	found, err := c.g.c.ZRangeByScoreWithScores(ctx, c.g.keys.Parked(string(r)), &redis.ZRangeBy{Min: from, Max: "+inf", Count: batchPage}).Result()
	if err != nil || len(found) == 0 {
		return sum, "", err
	}
	records := make([]string, len(found))
	for i, z := range found {
		id, _ := z.Member.(string)
		records[i] = c.g.keys.Job(id)
	}
	answer, err := parkedSumsScript.Run(ctx, c.g.c, records, string(r)).StringSlice()
	if err != nil || len(answer) == 0 {
		return sum, "", err
	}
	for _, money := range answer[1:] {
		sum.AddMoney(money)
	}
	sum.Jobs = 0
	if sum.Bytes, err = strconv.ParseInt(answer[0], 10, 64); err != nil {
		return sum, "", redisdb.BadReply("parked_sums.lua", answer)
	}
	if len(found) < batchPage {
		return sum, "", nil
	}
	return sum, "(" + strconv.FormatInt(int64(found[len(found)-1].Score), 10), nil
}

// moneyText returns the sums without the number of jobs.
func moneyText(s job.Totals) string {
	if len(s.Amount) == 0 && s.NoAmount == 0 && s.Bytes == 0 {
		return "none"
	}
	text := totalsText(s)
	return text[len("0 jobs, "):]
}
