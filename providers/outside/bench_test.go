package outside

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// canned answers with messages that are ready.
type canned []*subjects.Msg

func (c canned) Request(context.Context, *subjects.Msg) (*subjects.Msg, error) { return c[0], nil }

func (c canned) Stream(_ context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
	for _, m := range c {
		if err := yield(m); err != nil {
			return err
		}
	}
	return nil
}

func benchJob(b *testing.B) *providers.Job {
	b.Helper()
	r, err := wire.Parse(wire.Native, []byte(plain))
	if err != nil {
		b.Fatal(err)
	}
	return &providers.Job{Request: r, Model: "rev-1", CallID: "call"}
}

func message(b *testing.B, v any) *subjects.Msg {
	b.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	return &subjects.Msg{Data: data}
}

// BenchmarkComplete: one answer of 1.5 KB, without the transport.
func BenchmarkComplete(b *testing.B) {
	p := New(&config.Provider{ID: "reverse"}, Options{Transport: canned{message(b, map[string]any{
		"content": strings.Repeat("word ", 300), "model": "rev-1", "usage": map[string]int{"inputTokens": 1, "outputTokens": 300},
	})}})
	job := benchJob(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Complete(b.Context(), job); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStream: an answer in 200 deltas, without the transport.
func BenchmarkStream(b *testing.B) {
	var all canned
	for range 200 {
		all = append(all, message(b, subjects.Event{Type: subjects.EventDelta, Content: "word "}))
	}
	all = append(all, message(b, map[string]any{"type": "result", "content": strings.Repeat("word ", 200), "model": "rev-1"}))
	p := New(&config.Provider{ID: "reverse", Capabilities: []string{"streaming"}}, Options{Transport: all})
	job := benchJob(b)
	b.ReportAllocs()
	for b.Loop() {
		events := 0
		if _, err := p.Stream(b.Context(), job, func(*wire.Event) error { events++; return nil }); err != nil || events != 200 {
			b.Fatal(events, err)
		}
	}
}
