package testkit

import "context"

// Accept makes an offer of jobs (ledger.Books.Offer) and submits it, as admission does. It is generic because this package
// imports no other of the module.
func Accept[Job, Ticket, Answer, Room any, Offer ~func(context.Context, Ticket, string) ([]Answer, Room, error)](
	ctx context.Context, books interface {
		Offer(jobs []Job) (Offer, error)
	}, ticket Ticket, jobs []Job, mode string) ([]Answer, Room, error) {
	offer, err := books.Offer(jobs)
	if err != nil {
		var none Room
		return nil, none, err
	}
	return offer(ctx, ticket, mode)
}
