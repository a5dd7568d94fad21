package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// What is measured of one run over many jobs, in the order of the table.
const (
	rawName       = "raw pipelined HSET and LPUSH, by 500"
	oneName       = "asynq's Client, one goroutine"
	manyName      = "asynq's Client, 64 goroutines"
	autoName      = "asynq's Client over the AutoPipeliner, 512 goroutines"
	bullName      = "BullMQ's Queue.addBulk, by 500"
	bullTwoName   = "BullMQ's Queue.addBulk, by 500, two at once"
	eachName      = "enqueue's script for a job each, over the AutoPipeliner"
	enqueueName   = "enqueue"
	againName     = "enqueue again: all duplicates"
	parkName      = "enqueue without room: all parked"
	replayName    = "dispatcher dlq replay of all that is parked"
	asynqSendName = "calls of bare asynq, 64 at once"
	bullSendName  = "calls of a BullMQ Worker, 64 at once"
	sendName      = "calls of dispatcher run, all records kept"
	asynqMemory   = "bytes of Redis for a job queued by asynq"
	bullMemory    = "bytes of Redis for a job queued by BullMQ"
	memoryName    = "bytes of Redis for a job queued by enqueue"
	residentName  = "MiB of enqueue's memory, at most"
	doorName      = "µs of a job for admission and deduplication alone, by 500"
)

// ofRates are the figures in jobs a second, others those that are not.
var (
	ofRates = append([]string{rawName, oneName, manyName, autoName, bullName, bullTwoName, eachName, enqueueName, againName, parkName, replayName,
		asynqSendName, bullSendName, sendName}, laneNames()...)
	others = []string{asynqMemory, bullMemory, memoryName, residentName, doorName}
)

// results are the figures of every run by name.
type results map[string][]float64

func (r results) note(name string, value float64) { r[name] = append(r[name], value) }

// once measures everything once, one after the other on the same machine.
func (b *bulk) once(ctx context.Context, p *provider, r results) error {
	if err := errors.Join(b.peersOnce(ctx, r), b.ourselvesOnce(ctx, r)); err != nil {
		return err
	}
	if err := b.dispatchOnce(ctx, p, r); err != nil {
		return err
	}
	if err := errors.Join(b.lanedOnce(ctx, p, r), b.lanePeersOnce(ctx, p, r)); err != nil {
		return err
	}
	micros, err := b.door(ctx)
	if err != nil {
		return err
	}
	r.note(doorName, micros)
	return errors.Join(b.bullmqOnce(ctx, p, r), b.parkOnce(ctx, r))
}

func (b *bulk) peersOnce(ctx context.Context, r results) error {
	for _, m := range []struct {
		name string
		do   func() (float64, error)
	}{
		{rawName, func() (float64, error) { return b.raw(ctx) }},
		{oneName, func() (float64, error) { return b.asynqClient(ctx, b.c, 1) }},
		{manyName, func() (float64, error) { return b.asynqClient(ctx, b.c, 64) }},
		{autoName, func() (float64, error) { return b.asynqPipelined(ctx) }},
		{eachName, func() (float64, error) { return b.oneByOne(ctx) }},
	} {
		before, err := b.fresh(ctx)
		if err != nil {
			return err
		}
		rate, err := m.do()
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		r.note(m.name, rate)
		if m.name != oneName {
			continue
		}
		after, err := b.memory(ctx)
		if err != nil {
			return err
		}
		r.note(asynqMemory, float64(after-before)/float64(b.peers))
	}
	return nil
}

func (b *bulk) ourselvesOnce(ctx context.Context, r results) error {
	before, err := b.fresh(ctx)
	if err != nil {
		return err
	}
	first, err := b.enqueue(ctx)
	if err != nil {
		return err
	}
	after, err := b.memory(ctx)
	if err != nil {
		return err
	}
	second, err := b.enqueue(ctx)
	if err != nil {
		return err
	}
	if first.Enqueued != b.jobs || second.Duplicate != b.jobs {
		return fmt.Errorf("of %d jobs enqueue took %d in, and called %d duplicates the second time", b.jobs, first.Enqueued, second.Duplicate)
	}
	r.note(enqueueName, first.rate)
	r.note(againName, second.rate)
	r.note(memoryName, float64(after-before)/float64(b.jobs))
	r.note(residentName, max(first.mib, second.mib))
	return nil
}

// dispatchOnce finds the jobs of ourselvesOnce in the queue.
func (b *bulk) dispatchOnce(ctx context.Context, p *provider, r results) error {
	rate, err := b.dispatcher(ctx, p)
	if err != nil {
		return fmt.Errorf("dispatcher run: %w", err)
	}
	r.note(sendName, rate)
	if _, err := b.fresh(ctx); err != nil {
		return err
	}
	if _, err := b.asynqClient(ctx, b.c, 64); err != nil {
		return err
	}
	rate, err = b.bareAsynq(ctx, p)
	r.note(asynqSendName, rate)
	return err
}

// spreadOf returns the median, least and greatest of numbers.
func spreadOf(numbers []float64) (median, least, most float64) {
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1]
}

// over divides run by run.
func over(a, b []float64) []float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}

// times multiplies run by run.
func times(a, b []float64, by float64) []float64 {
	products := make([]float64, min(len(a), len(b)))
	for i := range products {
		products[i] = a[i] * b[i] * by
	}
	return products
}

// The ratios of runs to the peers of the same run.
type ratio struct{ text, a, b string }

var ratios = []ratio{
	{"enqueue to asynq's Client, one goroutine", enqueueName, oneName},
	{"enqueue to asynq's Client, 64 goroutines", enqueueName, manyName},
	{"enqueue to asynq's Client over the AutoPipeliner", enqueueName, autoName},
	{"enqueue to BullMQ's Queue.addBulk", enqueueName, bullName},
	{"enqueue to BullMQ's Queue.addBulk, two at once", enqueueName, bullTwoName},
	{"enqueue to its script for a job each", enqueueName, eachName},
	{"enqueue to the raw pipeline", enqueueName, rawName},
	{"duplicates to the raw pipeline", againName, rawName},
	{"enqueue without room to enqueue", parkName, enqueueName},
	{"dlq replay to enqueue", replayName, enqueueName},
	{"calls of dispatcher run to those of bare asynq", sendName, asynqSendName},
	{"calls of dispatcher run to those of a BullMQ Worker", sendName, bullSendName},
	{"enqueue with one lane to enqueue", lanedRows[0].enqueue, enqueueName},
	{"enqueue with 1,000 lanes to enqueue", lanedRows[1].enqueue, enqueueName},
	{"calls with one lane to those without", lanedRows[0].send, sendName},
	{"calls with 1,000 lanes to those without", lanedRows[1].send, sendName},
	{"memory of a queued job to asynq's", memoryName, asynqMemory},
	{"memory of a queued job to BullMQ's", memoryName, bullMemory},
}

// table writes the figures and the ratios in Markdown, without those of a peer that could not be run.
func (r results) table(w io.Writer) {
	row := func(text, format string, numbers []float64) {
		if len(numbers) > 0 {
			median, least, most := spreadOf(numbers)
			fmt.Fprintf(w, "| %s | "+format+" |\n", text, median, least, most)
		}
	}
	fmt.Fprintln(w, "| | median | least to most |\n|---|---:|---:|")
	for _, name := range ofRates {
		row(name, "%.0f/s | %.0f to %.0f", r[name])
	}
	for _, name := range others {
		row(name, "%.1f | %.1f to %.1f", r[name])
	}
	fmt.Fprintln(w, "\n| ratio, run by run | median | least to most |\n|---|---:|---:|")
	for _, c := range slices.Concat(ratios, laneRatios()) {
		row(c.text, "%.2f | %.2f to %.2f", over(r[c.a], r[c.b]))
	}
	row("admission and deduplication, as a share of enqueue's time", "%.2f | %.2f to %.2f", times(r[doorName], r[enqueueName], 1e-6))
}
