package sluice_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

var openAIBody = []byte(`{"model":"auto","messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"Name three rivers of Europe and say for each in one sentence where it rises and where it ends."}],"temperature":0.2,"max_tokens":256}`)

// BenchmarkCall is one call through the mock with its usage record
// acknowledged: inside the process, and over a NATS connection.
func BenchmarkCall(b *testing.B) {
	node := sluicetest.Start(b, sluice.WithNATSListen("127.0.0.1:0"))
	nc, err := nats.Connect(node.NATSURL())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	client := node.Client()
	msg := func() *subjects.Msg {
		return &subjects.Msg{
			Subject: subjects.Complete(subjects.ClassInteractive),
			Header:  subjects.Header{subjects.HeaderWire: {"openai-chat"}, subjects.HeaderSkipCache: {"true"}}, Data: openAIBody,
		}
	}
	for _, bench := range []struct {
		name string
		call func() error
	}{
		{"local", func() error { _, err := client.Request(context.Background(), msg()); return err }},
		{"nats", func() error {
			m := msg()
			r, err := nc.RequestMsg(&nats.Msg{Subject: m.Subject, Header: nats.Header(m.Header), Data: m.Data}, nats.DefaultTimeout*10)
			if err == nil && r.Header.Get(subjects.HeaderErrorCode) != "" {
				return subjects.ErrorOf(&subjects.Msg{Header: subjects.Header(r.Header), Data: r.Data})
			}
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bench.name+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := bench.call(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkCacheHit is a call over NATS that is answered from the cache, with its
// usage record acknowledged, beside a request over the same connection to a
// service that answers with as many bytes and does nothing else.
func BenchmarkCacheHit(b *testing.B) {
	node := sluicetest.Start(b, sluice.WithNATSListen("127.0.0.1:0"))
	nc, err := nats.Connect(node.NATSURL())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	ask := func(subject string) *nats.Msg {
		r, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: nats.Header{subjects.HeaderWire: {"openai-chat"}}, Data: openAIBody}, nats.DefaultTimeout*10)
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	complete := subjects.Complete(subjects.ClassInteractive)
	ask(complete)
	answer := ask(complete)
	if answer.Header.Get(subjects.HeaderCached) != "true" {
		b.Fatalf("not from the cache: %v", answer.Header)
	}
	sub, err := node.Conn().Subscribe(subjects.Provider("raw"), func(m *nats.Msg) { _ = m.RespondMsg(&nats.Msg{Header: answer.Header, Data: answer.Data}) })
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for _, bench := range []struct{ name, subject string }{{"hit", complete}, {"raw", subjects.Provider("raw")}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask(bench.subject)
			}
		})
	}
}
