package actors

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// logLevel is the level of the one line per call.
const logLevel = slog.LevelInfo

func runID(id string, run int) string { return id + "#" + strconv.Itoa(run) }

// read takes out of the message what routing must know: the body by its wire,
// the headers over it.
func (c *call) read() error {
	h := c.in.Header
	c.id = h.Get(subjects.HeaderCallID)
	if err := checkCallID("header "+subjects.HeaderCallID, c.id); err != nil {
		c.id = subjects.NewCallID()
		return err
	}
	name := wire.Name(h.Get(subjects.HeaderWire))
	if name == "" {
		name = wire.Native
	}
	req, err := wire.Parse(name, c.in.Data)
	if err != nil {
		c.nameCall("")
		return err
	}
	c.req = req
	if err := checkCallID("callId", req.Head.CallID); err != nil {
		c.nameCall("")
		return err
	}
	c.nameCall(req.Head.CallID)
	if err := c.readHeaders(); err != nil {
		return err
	}
	return c.pickClass()
}

func (c *call) nameCall(fromBody string) {
	if c.id == "" {
		c.id = fromBody
	}
	c.isHop = isHop(c.in)
	c.given = c.id != "" && !c.isHop
	if c.id == "" {
		c.id = subjects.NewCallID()
	}
}

func checkCallID(field, id string) error {
	if len(id) > subjects.MaxCallID {
		return subjects.Errorf(subjects.KindValidation, "%s: %d bytes, above the bound of %d; use a shorter id", field, len(id), subjects.MaxCallID)
	}
	for i := 0; i < len(id); i++ {
		if id[i] <= ' ' || id[i] >= 0x7f {
			return subjects.Errorf(subjects.KindValidation, "%s: a space, control or non-ASCII character at byte %d; use letters, digits and punctuation", field, i)
		}
	}
	return nil
}

// readHeaders lets the headers of the contract win over the body's fields.
func (c *call) readHeaders() error {
	h, head := c.in.Header, &c.req.Head
	for _, f := range []struct {
		header string
		to     *string
	}{
		{subjects.HeaderProcess, &head.Process},
		{subjects.HeaderTask, &head.Task},
		{subjects.HeaderTier, &head.Tier},
		{subjects.HeaderProvider, &head.Provider},
		{subjects.HeaderRunID, &head.RunID},
		{subjects.HeaderBatchID, &head.BatchID},
		{subjects.HeaderCacheScope, &head.CacheScope},
	} {
		if v := h.Get(f.header); v != "" {
			if err := wire.CheckName("header "+f.header, v, subjects.MaxName); err != nil {
				return err
			}
			*f.to = v
		}
	}
	if v := h.Get(subjects.HeaderTimeoutMs); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 || n > subjects.MaxTimeoutMs {
			return subjects.Errorf(subjects.KindValidation, "header %s: a whole number of milliseconds from 1 to %d is needed", subjects.HeaderTimeoutMs, subjects.MaxTimeoutMs)
		}
		head.Timeout = time.Duration(n) * time.Millisecond
	}
	if v := h.Get(subjects.HeaderSkipCache); v != "" {
		skip, err := strconv.ParseBool(v)
		if err != nil {
			return subjects.Errorf(subjects.KindValidation, "header %s: true or false is needed", subjects.HeaderSkipCache)
		}
		head.SkipCache = skip
	}
	if err := c.readHops(h.Get(subjects.HeaderHops)); err != nil {
		return err
	}
	if head.Process == "" {
		head.Process = subjects.UnknownProcess
	}
	if c.in.Provider != "" {
		head.Provider = c.in.Provider
	}
	if c.isHop {
		head.Model = h.Get(subjects.HeaderModel)
	}
	return nil
}

// readHops refuses a call that goes round in a circle of proxies: at once, when
// it comes back to this node, and at the bound, when it goes through others. The
// kind lets the node that sent it here move on to its next provider.
func (c *call) readHops(hops string) error {
	if hops == "" {
		return nil
	}
	if err := wire.CheckName("header "+subjects.HeaderHops, hops, subjects.MaxName); err != nil {
		return err
	}
	through := strings.Split(hops, ",")
	switch {
	case slices.Contains(through, c.e.node):
		return subjects.Errorf(subjects.KindProviderUnavailable, "the call went out from this node by its proxy and came back: the proxies lead in a circle; correct LLM_CLI_PROXY_URL on one of them")
	case len(through) >= subjects.MaxHops:
		return subjects.Errorf(subjects.KindProviderUnavailable, "the call came through %d proxies, the bound: they may lead in a circle; correct LLM_CLI_PROXY_URL on one of them", len(through))
	}
	c.hops = hops
	return nil
}

func (c *call) pickClass() error {
	if c.class != "" {
		return nil
	}
	c.class = c.in.Header.Get(subjects.HeaderClass)
	if c.class == "" {
		c.class = routing.Class(c.s.cfg, c.req.Head.Process)
	}
	if !subjects.ValidClass(c.class) {
		bad := c.class
		c.class = subjects.ClassInteractive
		return subjects.Errorf(subjects.KindValidation, "header %s: %q is no class; the classes are interactive and ingestion", subjects.HeaderClass, bad)
	}
	return nil
}

// recorder keeps a copy of what a call replies, for others who ask with the same
// id, up to maxKeptAnswer bytes. When the first asker cannot be reached any more
// it says so and goes on recording.
type recorder struct {
	out   Reply
	left  func()
	msgs  answer
	bytes int
	full  bool
	ended bool
	gone  bool
}

func (r *recorder) send(m *subjects.Msg) error {
	r.ended = r.ended || m.End() || m.Header.Get(subjects.HeaderErrorCode) != ""
	r.bytes += len(m.Data) + 64
	if r.bytes > maxKeptAnswer {
		r.full, r.msgs = true, nil
	}
	if !r.full {
		r.msgs = append(r.msgs, &subjects.Msg{Header: m.Header, Data: append([]byte(nil), m.Data...)})
	}
	if r.gone {
		return nil
	}
	err := r.out(m)
	var ours *subjects.Error // an answer too large for NATS: nobody has left
	if err == nil || errors.As(err, &ours) {
		return err
	}
	r.gone = true
	r.left()
	return nil
}

func (r *recorder) answer() answer {
	if r == nil || r.full {
		return nil
	}
	return r.msgs
}
