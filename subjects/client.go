package subjects

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Client is the Transport over a NATS connection, with typed calls on top. It
// does nothing that a client in another language cannot do. Safe for
// concurrent use; closing the connection is the owner's business.
type Client struct {
	nc *nats.Conn
}

// NewClient makes a client on a connection that is already made.
func NewClient(nc *nats.Conn) *Client { return &Client{nc: nc} }

// NewCallID makes a call id that no other call has.
func NewCallID() string { return nuid.Next() }

var _ Transport = (*Client)(nil)

func (c *Client) prepare(m *Msg, inbox string) (*nats.Msg, string, error) {
	id := m.Header.Get(HeaderCallID)
	h := make(nats.Header, len(m.Header)+1)
	for k, v := range m.Header {
		h[k] = v
	}
	if id == "" {
		id = NewCallID()
		h[HeaderCallID] = []string{id}
	}
	out := &nats.Msg{Subject: m.Subject, Reply: inbox, Header: h, Data: m.Data}
	if limit := c.nc.MaxPayload(); limit > 0 && int64(out.Size()) > limit {
		return nil, id, TooLarge(int64(out.Size()), limit)
	}
	return out, id, nil
}

// TooLarge is the error for a message above the NATS limit, both in bytes.
func TooLarge(size, limit int64) *Error {
	e := Errorf(KindValidation,
		"request: %d bytes with its headers, above this server's max_payload of %d; shorten the prompt, send images by URL, or raise max_payload in nats.conf (64MB at most)",
		size, limit)
	e.Code = CodeTooLarge
	return e
}

// Request implements Transport. For subjects other than calls no call id is needed,
// but one does no harm.
func (c *Client) Request(ctx context.Context, m *Msg) (*Msg, error) {
	out, id, err := c.prepare(m, "")
	if err != nil {
		return nil, err
	}
	in, err := c.nc.RequestMsgWithContext(ctx, out)
	if err != nil {
		if ctx.Err() != nil {
			c.cancel(id)
		}
		return nil, c.failed(ctx, m.Subject, id, err)
	}
	reply := &Msg{Subject: in.Subject, Header: Header(in.Header), Data: in.Data}
	if e := ErrorOf(reply); e != nil {
		return nil, e
	}
	return reply, nil
}

// Stream implements Transport.
func (c *Client) Stream(ctx context.Context, m *Msg, yield func(*Msg) error) (err error) {
	inbox := c.nc.NewInbox()
	out, id, err := c.prepare(m, inbox)
	if err != nil {
		return err
	}
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return c.failed(ctx, m.Subject, id, err)
	}
	ended := false
	defer func() {
		_ = sub.Unsubscribe()
		if !ended {
			c.cancel(id)
		}
	}()
	if err := c.nc.PublishMsg(out); err != nil {
		return c.failed(ctx, m.Subject, id, err)
	}
	for {
		in, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return c.failed(ctx, m.Subject, id, err)
		}
		if len(in.Data) == 0 && in.Header.Get("Status") == "503" {
			ended = true
			return c.failed(ctx, m.Subject, id, nats.ErrNoResponders)
		}
		reply := Msg{Subject: in.Subject, Header: Header(in.Header), Data: in.Data}
		if e := ErrorOf(&reply); e != nil {
			ended = true
			return e
		}
		if reply.End() {
			ended = true
			return nil
		}
		if err := yield(&reply); err != nil {
			return err
		}
	}
}

// failed turns a NATS error into the contract's.
func (c *Client) failed(ctx context.Context, subject, id string, err error) *Error {
	switch {
	case ctx.Err() != nil:
		e := AsError(ctx.Err())
		e.CallID = id
		return e
	case errors.Is(err, nats.ErrNoResponders):
		return Errorf(KindProviderUnavailable, "nobody answers %s: no Sluice node serves this subject on this NATS server", subject).WithCause(err)
	case errors.Is(err, nats.ErrMaxPayload):
		return TooLarge(0, c.nc.MaxPayload()).WithCause(err)
	case errors.Is(err, nats.ErrTimeout):
		return Errorf(KindTimeout, "no answer in time").WithCause(err)
	case errors.Is(err, nats.ErrSlowConsumer):
		return Errorf(KindProvider, "the answer came faster than it was read; part of it is lost").WithCause(err)
	}
	return Errorf(KindProviderUnavailable, "the NATS connection failed").WithCause(err)
}

func (c *Client) cancel(id string) {
	body, _ := json.Marshal(CancelRequest{CallID: id})
	_ = c.nc.Publish(Cancel, body)
}

// Cancel stops a call: frees its slots and aborts the upstream request. It
// does not wait; a call that has ended or never was is no error.
func (c *Client) Cancel(callID string) error {
	body, err := json.Marshal(CancelRequest{CallID: callID})
	if err != nil {
		return err
	}
	return c.nc.Publish(Cancel, body)
}

// Call makes one native call in a class and waits for its result. Without a
// deadline in ctx the node's default applies.
func Call(ctx context.Context, t Transport, class string, req *Request) (*Result, error) {
	r := *req
	r.Stream = false
	m, err := nativeMsg(ctx, class, &r)
	if err != nil {
		return nil, err
	}
	reply, err := t.Request(ctx, m)
	if err != nil {
		return nil, err
	}
	res := &Result{}
	if err := json.Unmarshal(reply.Data, res); err != nil {
		return nil, Errorf(KindProvider, "the reply is not a native result").WithCause(err)
	}
	return res, nil
}

// CallStream makes one native streaming call. yield gets the deltas and tool
// calls in order; the result is returned, beside an error when it came first.
func CallStream(ctx context.Context, t Transport, class string, req *Request, yield func(Event) error) (*Result, error) {
	r := *req
	r.Stream = true
	m, err := nativeMsg(ctx, class, &r)
	if err != nil {
		return nil, err
	}
	var res *Result
	err = t.Stream(ctx, m, func(m *Msg) error {
		var ev Event
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			return Errorf(KindProvider, "a stream message is not a native event").WithCause(err)
		}
		if ev.Type == EventResult {
			res = ev.Result
			return nil
		}
		return yield(ev)
	})
	if err != nil {
		return res, err
	}
	if res == nil {
		return nil, Errorf(KindProvider, "the stream ended without its result")
	}
	return res, nil
}

func nativeMsg(ctx context.Context, class string, req *Request) (*Msg, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, Errorf(KindValidation, "request: cannot be written as JSON: %w", err)
	}
	m := &Msg{Subject: Complete(class), Header: Header{}, Data: body}
	if req.CallID != "" {
		m.Header.Set(HeaderCallID, req.CallID)
	}
	if d, ok := ctx.Deadline(); ok && req.TimeoutMs == 0 {
		if ms := time.Until(d).Milliseconds(); ms > 0 {
			m.Header.Set(HeaderTimeoutMs, strconv.FormatInt(min(ms, MaxTimeoutMs), 10))
		}
	}
	return m, nil
}

// Query asks a query subject and reads its JSON answer into out. in may be nil.
func Query(ctx context.Context, t Transport, subject string, in, out any) error {
	m := &Msg{Subject: subject}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return Errorf(KindValidation, "query: cannot be written as JSON: %w", err)
		}
		m.Data = b
	}
	reply, err := t.Request(ctx, m)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(reply.Data, out); err != nil {
		return Errorf(KindProvider, "the answer to %s is not what this version knows", subject).WithCause(err)
	}
	return nil
}
