package pan

import (
	"context"
	"log/slog"
)

// Handler masks card numbers in messages, and in values of all kinds, before it passes them on to another handler.
type Handler struct{ Next slog.Handler }

// Enabled implements slog.Handler.
func (h Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.Next.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	found := ContainsString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		found = found || told(a)
		return !found
	})
	if !found {
		return h.Next.Handle(ctx, r)
	}
	clean := slog.NewRecord(r.Time, r.Level, MaskString(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(maskAttr(a))
		return true
	})
	return h.Next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = maskAttr(a)
	}
	return Handler{h.Next.WithAttrs(clean)}
}

// WithGroup implements slog.Handler.
func (h Handler) WithGroup(name string) slog.Handler { return Handler{h.Next.WithGroup(name)} }

// told reports whether an attribute may have a card number.
func told(a slog.Attr) bool {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		return ContainsString(v.String()) || ContainsString(a.Key)
	case slog.KindInt64, slog.KindUint64, slog.KindAny, slog.KindGroup:
		return ContainsString(v.String()) || ContainsString(a.Key)
	}
	return false
}

func maskAttr(a slog.Attr) slog.Attr {
	a.Key = MaskString(a.Key)
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(MaskString(v.String()))
	case slog.KindInt64, slog.KindUint64, slog.KindAny:
		if text := v.String(); ContainsString(text) {
			a.Value = slog.StringValue(MaskString(text))
		}
	case slog.KindGroup:
		all := v.Group()
		clean := make([]any, len(all))
		for i, one := range all {
			clean[i] = maskAttr(one)
		}
		a = slog.Group(a.Key, clean...)
	}
	return a
}
