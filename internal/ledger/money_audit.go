package ledger

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// money holds the sums of what is parked against the records. While jobs with money come and go all the time there is no moment to count
// at, and nothing is found.
func (c *batchCheck) money(ctx context.Context) error {
	for range recountTries {
		before, err := c.b.c.HGetAll(ctx, c.b.keys.Money()).Result()
		if err != nil || len(before) == 0 && c.b.cfg.Money == nil {
			return err
		}
		counted, err := c.recountMoney(ctx)
		if err != nil {
			return err
		}
		after, err := c.b.c.HGetAll(ctx, c.b.keys.Money()).Result()
		if err != nil {
			return err
		}
		if !maps.Equal(before, after) {
			continue
		}
		books, err := parseBatch(after)
		if err != nil {
			return err
		}
		return c.judgeMoney(ctx, after, books.Places, counted)
	}
	return nil
}

// judgeMoney writes wrong sums anew, or tells of them.
func (c *batchCheck) judgeMoney(ctx context.Context, read map[string]string, has, is map[Place]Sums) error {
	wrong := ""
	for _, r := range job.Reasons() {
		if p := (Place{State: job.Parked, Reason: r}); wrong == "" && !has[p].equals(is[p]) {
			wrong = fmt.Sprintf("the sums of what is parked as %s are %s, those of its records %s", r, has[p].moneyText(), is[p].moneyText())
		}
	}
	if wrong == "" {
		return nil
	}
	if c.repair {
		fields := map[string]int64{}
		for p, s := range is {
			s.fields(p.field(), fields)
			delete(fields, "n:"+p.field()) // these books count no jobs
		}
		written, err := c.write(ctx, c.b.keys.Money(), c.b.keys.Money(), read, fields)
		if err != nil || written {
			return err
		}
	}
	c.found(Finding{What: MoneyBooks, Where: "money", Text: wrong})
	return nil
}

// recountMoney adds up the money of all parked jobs. Jobs stays zero, as in the books.
func (c *batchCheck) recountMoney(ctx context.Context) (map[Place]Sums, error) {
	counted := map[Place]Sums{}
	for _, r := range job.Reasons() {
		from := "-inf"
		for from != "" {
			s, next, err := c.moneyPage(ctx, r, from)
			if err != nil {
				return nil, err
			}
			p := Place{State: job.Parked, Reason: r}
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

// moneyPage adds up one page of the jobs that are parked for a reason; next is where the following one begins, empty behind the last.
func (c *batchCheck) moneyPage(ctx context.Context, r job.Reason, from string) (sum Sums, next string, err error) {
	found, err := c.b.c.ZRangeByScoreWithScores(ctx, c.b.keys.Parked(string(r)), &redis.ZRangeBy{Min: from, Max: "+inf", Count: batchPage}).Result()
	if err != nil || len(found) == 0 {
		return sum, "", err
	}
	cmds := make([]*redis.SliceCmd, len(found))
	if _, err := c.b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range found {
			id, _ := z.Member.(string)
			cmds[i] = p.HMGet(ctx, c.b.keys.Job(id), "s", "r", "m")
		}
		return nil
	}); err != nil {
		return sum, "", err
	}
	for _, cmd := range cmds {
		v := cmd.Val()
		if money, ok := v[2].(string); ok && v[0] == string(job.Parked) && v[1] == string(r) {
			sum.Add(moneyOf([]string{money}))
		}
	}
	sum.Jobs = 0
	if len(found) < batchPage {
		return sum, "", nil
	}
	return sum, "(" + strconv.FormatInt(int64(found[len(found)-1].Score), 10), nil
}

// moneyText is the sums without the number of jobs.
func (s Sums) moneyText() string {
	if len(s.Money) == 0 && s.Unread == 0 {
		return "none"
	}
	text := s.text()
	return text[len("0 jobs, "):]
}
