package main

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// natsCaller asks as a NATS program does: one reply by request/reply, or a
// stream on an inbox of its own until the empty payload.
type natsCaller struct {
	nc      *nats.Conn
	subject string
	header  nats.Header
	body    body
	stream  bool
}

// openNATS makes callers that share a few connections, as an organisation's
// programs do with many more.
func (l *loader) openNATS(c loadCommand) error {
	conns := make([]*nats.Conn, 0, min(c.Conns, c.Concurrency))
	l.shut = func() {
		for _, nc := range conns {
			nc.Close()
		}
	}
	for range cap(conns) {
		nc, err := nats.Connect(c.Addr, nats.Name("bench load"), nats.Timeout(callLimit))
		if err != nil {
			return err
		}
		conns = append(conns, nc)
	}
	for i := range c.Concurrency {
		// Each caller writes its number into a body of its own.
		n := &natsCaller{nc: conns[i%len(conns)], stream: c.Mode == modeStream, body: requestBody(c.Target, c.Mode)}
		n.subject = subjects.Complete(subjects.ClassInteractive)
		n.header = nats.Header{subjects.HeaderWire: {"openai-chat"}, subjects.HeaderProcess: {"bench-nats"}}
		if c.Target == targetRaw {
			n.subject, n.header = echoPlain, nil
			if n.stream {
				n.subject = echoStream
			}
		}
		l.callers = append(l.callers, n)
	}
	return nil
}

func (c *natsCaller) close() {}

func (c *natsCaller) call(seq uint64) error {
	c.body.number(c.body.text, 0, seq)
	m := &nats.Msg{Subject: c.subject, Header: c.header, Data: c.body.text}
	if c.stream {
		return c.callStream(m)
	}
	r, err := c.nc.RequestMsg(m, callLimit)
	if err != nil {
		return err
	}
	if err := failure(r); err != nil {
		return err
	}
	if len(r.Data) < 1000 || !bytes.Contains(r.Data, []byte(`"total_tokens":`)) {
		return unexpected("no whole answer", r.Data)
	}
	return nil
}

func (c *natsCaller) callStream(m *nats.Msg) error {
	m.Reply = c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(m.Reply)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishMsg(m); err != nil {
		return err
	}
	end := time.Now().Add(callLimit)
	for n := 0; ; n++ {
		r, err := sub.NextMsg(time.Until(end))
		if err != nil {
			return fmt.Errorf("after %d events: %w", n, err)
		}
		if err := failure(r); err != nil {
			return err
		}
		if len(r.Data) > 0 {
			continue
		}
		if n < streamChunks {
			return unexpected("the stream's end", fmt.Appendf(nil, "after %d events", n))
		}
		return nil
	}
}

// failure is the error that a reply stands for, if any.
func failure(m *nats.Msg) error {
	if code := m.Header.Get(subjects.HeaderErrorCode); code != "" {
		return fmt.Errorf("%w: error %s: %s", errAnswer, code, m.Header.Get(subjects.HeaderError))
	}
	if len(m.Data) == 0 && m.Header.Get("Status") != "" {
		return errors.New("nobody answers " + m.Subject + ": " + m.Header.Get("Status"))
	}
	return nil
}
