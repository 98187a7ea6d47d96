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
	msg := func() *subjects.Msg {
		return &subjects.Msg{
			Subject: subjects.Complete(subjects.ClassInteractive),
			Header:  subjects.Header{subjects.HeaderWire: {"openai-chat"}}, Data: openAIBody,
		}
	}
	for _, bench := range []struct {
		name string
		call func() error
	}{
		{"local", func() error { _, err := node.Client().Request(context.Background(), msg()); return err }},
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
