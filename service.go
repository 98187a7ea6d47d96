package sluice

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/sluice-llm/sluice/actors"
	"github.com/sluice-llm/sluice/subjects"
)

// service is the node on NATS: the micro service llm with an endpoint per
// subject, and the plain subscriptions beside it.
type service struct {
	conn   *nats.Conn
	engine *actors.Engine
	log    *slog.Logger
	micro  micro.Service
	subs   []*nats.Subscription
	hosted map[string]bool // the providers with an endpoint; the start's, then the reloader's
	left   sync.Once
	once   sync.Once
}

// The pending bounds of one endpoint's subscription. Its handler hands each
// message off at once, so these fill only when the machine cannot keep up; the
// engine's own bounds answer with an error long before.
const (
	pendingMsgs  = 1 << 17
	pendingBytes = 1 << 30
)

func newService(conn *nats.Conn, engine *actors.Engine, log *slog.Logger, hosts []string) (*service, error) {
	s := &service{conn: conn, engine: engine, log: log, hosted: map[string]bool{}}
	var err error
	s.micro, err = micro.AddService(conn, micro.Config{
		Name: subjects.ServiceName, Version: Version,
		Description:  "every LLM call of an organisation: fair, accounted for",
		QueueGroup:   subjects.QueueGroup,
		StatsHandler: func(*micro.Endpoint) any { return engine.Gauges() },
	})
	if err != nil {
		return nil, err
	}
	if err = s.meet(); err == nil {
		err = s.addEndpoints(hosts)
	}
	if err == nil {
		err = conn.Flush() // the server knows the subscriptions: a first call finds us
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *service) addEndpoints(hosts []string) error {
	for _, class := range subjects.Classes {
		if err := s.add("complete-"+class, subjects.Complete(class), s.call(actors.Incoming{Class: class})); err != nil {
			return err
		}
	}
	if err := s.host(hosts); err != nil {
		return err
	}
	for subject, q := range s.engine.Queries() {
		name := strings.ReplaceAll(strings.TrimPrefix(subject, "llm."), ".", "-")
		if err := s.add(name, subject, s.query(q)); err != nil {
			return err
		}
	}
	return errors.Join(s.subscribe(subjects.Cancel, s.onCancel), s.subscribe(subjects.ProviderAnnounce, s.onAnnounce))
}

// meet listens to the other nodes, and then asks them to say what they host: in
// this order, since each answers once, and before the first call comes.
func (s *service) meet() error {
	err := s.subscribe(subjects.NodeStatus, func(m *nats.Msg) { s.engine.PeerStatus(m.Data) })
	if err == nil {
		err = s.conn.Flush()
	}
	if err == nil {
		s.engine.Meet()
	}
	return err
}

// host takes the calls that are aimed at providers, from now on: one that an edit
// takes away answers that it is not there, and is found again if it comes back.
func (s *service) host(ids []string) error {
	for _, id := range ids {
		if s.hosted[id] {
			continue
		}
		if err := s.add("provider-"+id, subjects.Provider(id), s.call(actors.Incoming{Provider: id})); err != nil {
			return err
		}
		s.hosted[id] = true
	}
	return nil
}

func (s *service) add(name, subject string, h func(micro.Request)) error {
	return s.micro.AddEndpoint(name, micro.HandlerFunc(h), micro.WithEndpointSubject(subject),
		micro.WithEndpointPendingLimits(pendingMsgs, pendingBytes))
}

func (s *service) subscribe(subject string, h nats.MsgHandler) error {
	sub, err := s.conn.Subscribe(subject, h)
	if err == nil {
		s.subs = append(s.subs, sub)
	}
	return err
}

// call hands each request to a goroutine of its own. A request without a reply
// inbox is refused: its answer could go to nobody, and would cost tokens.
func (s *service) call(as actors.Incoming) func(micro.Request) {
	return func(r micro.Request) {
		if !answerable(r.Reply()) {
			s.log.Warn("call refused: its reply goes to no inbox; send it as a request", "subject", r.Subject())
			return
		}
		in := as
		in.Inbox = r.Reply()
		in.Msg = &subjects.Msg{Subject: r.Subject(), Header: subjects.Header(r.Headers()), Data: r.Data()}
		s.engine.Begin(in, s.replyTo(in.Inbox))
	}
}

// answerable reports whether a reply may go to a subject. A node may publish
// where its callers may not, so they must not choose such a place for an answer.
func answerable(reply string) bool {
	return reply != "" && !strings.HasPrefix(reply, "llm.") && !strings.HasPrefix(reply, "$")
}

// replyTo publishes replies. Not through the micro request: its Error is not
// safe outside the handler, and its Respond hides that a reply is too large.
func (s *service) replyTo(inbox string) actors.Reply {
	return func(m *subjects.Msg) error {
		out := nats.Msg{Subject: inbox, Header: nats.Header(m.Header), Data: m.Data}
		if limit := s.conn.MaxPayload(); int64(out.Size()) > limit {
			return subjects.Errorf(subjects.KindProvider,
				"the answer has %d bytes with its headers, above this server's max_payload of %d; ask for a stream, for a shorter answer, or raise max_payload in nats.conf",
				out.Size(), limit)
		}
		return s.conn.PublishMsg(&out)
	}
}

func (s *service) query(q actors.Query) func(micro.Request) {
	return func(r micro.Request) {
		inbox, body := r.Reply(), r.Data()
		if !answerable(inbox) {
			return
		}
		go func() {
			reply := s.replyTo(inbox)
			if err := reply(s.engine.Answer(context.Background(), q, body)); err != nil {
				e := subjects.Errorf(subjects.KindValidation, "the answer does not fit in one message of this NATS server (max_payload); ask for fewer rows")
				e.Code = subjects.CodeReplyTooLarge
				_ = reply(e.Msg())
			}
		}()
	}
}

func (s *service) onCancel(m *nats.Msg) {
	if err := s.engine.Cancel(m.Data); err != nil && m.Reply != "" {
		_ = s.replyTo(m.Reply)(subjects.AsError(err).Msg())
	}
}

// onAnnounce takes the announcement of an outside provider. One that has a reply
// inbox hears whether it is taken.
func (s *service) onAnnounce(m *nats.Msg) {
	err := s.engine.Announce(context.Background(), m.Data)
	if !answerable(m.Reply) {
		return
	}
	answer := &subjects.Msg{Data: []byte(`{"accepted":true}`)}
	if err != nil {
		answer = subjects.AsError(err).Msg()
	}
	_ = s.replyTo(m.Reply)(answer)
}

// leave takes no more calls and queries: other nodes get them. Calls that run go
// on, and can be cancelled.
func (s *service) leave() { s.left.Do(func() { _ = s.micro.Stop() }) }

// stop takes no more messages at all.
func (s *service) stop() {
	s.once.Do(func() {
		s.leave()
		for _, sub := range s.subs {
			_ = sub.Unsubscribe()
		}
	})
}

// local is the Transport inside the process: the same handlers as on NATS,
// without the copies. Its calls run in the calling goroutine.
type local struct {
	engine  *actors.Engine
	queries map[string]actors.Query
}

var _ subjects.Transport = (*local)(nil)

// Request implements subjects.Transport.
func (l *local) Request(ctx context.Context, m *subjects.Msg) (*subjects.Msg, error) {
	if q := l.queries[m.Subject]; q != nil {
		reply := l.engine.Answer(ctx, q, m.Data)
		if e := subjects.ErrorOf(reply); e != nil {
			return nil, e
		}
		return reply, nil
	}
	var first *subjects.Msg
	err := l.Stream(ctx, m, func(r *subjects.Msg) error {
		if first == nil {
			first = &subjects.Msg{Header: maps.Clone(r.Header), Data: r.Data}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return first, nil
}

// Stream implements subjects.Transport.
func (l *local) Stream(ctx context.Context, m *subjects.Msg, yield func(*subjects.Msg) error) error {
	in := actors.Incoming{Msg: m}
	switch {
	case m.Subject == subjects.Cancel:
		return l.engine.Cancel(m.Data)
	case strings.HasPrefix(m.Subject, "llm.complete."):
		if in.Class = strings.TrimPrefix(m.Subject, "llm.complete."); !subjects.ValidClass(in.Class) {
			return subjects.Errorf(subjects.KindProviderUnavailable, "nobody answers %s; the classes are interactive and ingestion", m.Subject)
		}
	case strings.HasPrefix(m.Subject, "llm.provider.") && strings.HasSuffix(m.Subject, ".complete"):
		in.Provider = strings.TrimSuffix(strings.TrimPrefix(m.Subject, "llm.provider."), ".complete")
	default:
		return subjects.Errorf(subjects.KindProviderUnavailable, "nobody answers %s", m.Subject)
	}
	var failed, left error
	l.engine.Serve(ctx, in, func(r *subjects.Msg) error {
		switch e := subjects.ErrorOf(r); {
		case left != nil:
			return left
		case e != nil:
			failed = e
			return nil
		case r.End():
			return nil
		}
		left = yield(r)
		return left
	})
	if left != nil {
		return left
	}
	if failed != nil {
		return failed
	}
	return nil
}
