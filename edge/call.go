package edge

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// requestHeaders are the call's metadata: what HTTP names them and what NATS does.
var requestHeaders = [...]struct{ http, nats string }{
	{"X-Llm-Call-Id", subjects.HeaderCallID},
	{"X-Llm-Process", subjects.HeaderProcess},
	{"X-Llm-Task", subjects.HeaderTask},
	{"X-Llm-Tier", subjects.HeaderTier},
	{"X-Llm-Timeout-Ms", subjects.HeaderTimeoutMs},
	{"X-Llm-Provider", subjects.HeaderProvider},
	{"X-Llm-Skip-Cache", subjects.HeaderSkipCache},
	{"X-Llm-Cache-Scope", subjects.HeaderCacheScope},
	{"X-Llm-Run-Id", subjects.HeaderRunID},
	{"X-Llm-Batch-Id", subjects.HeaderBatchID},
	{"X-Llm-Hops", subjects.HeaderHops},
	{"Traceparent", subjects.HeaderTraceparent},
}

// complete makes one call on a wire and answers with its reply.
func (x *exchange) complete(w wire.Name) {
	body, e := x.readBody()
	if e != nil {
		x.fail(e)
		return
	}
	p := peek(body, w)
	m, e := x.message(w, &p, body)
	if e != nil {
		x.fail(e)
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.timeout(&p))
	defer cancel()
	if p.stream {
		x.stream(ctx, m)
		return
	}
	reply, err := x.s.t.Request(ctx, m)
	if err != nil {
		x.fail(subjects.AsError(err))
		return
	}
	x.replyHeaders(reply.Header)
	data := reply.Data
	if w == wire.Native {
		data = withTokens(data)
	}
	x.send(http.StatusOK, typeJSON, data)
}

// message makes the NATS request. A call without an id gets one from the node,
// which need not remember an id that nobody can send again.
func (x *exchange) message(w wire.Name, p *peeked, body []byte) (*subjects.Msg, *subjects.Error) {
	in := x.r.Header
	out := make(subjects.Header, len(requestHeaders)+1)
	values := make([]string, 0, len(requestHeaders)+1)
	set := func(name, value string) {
		values = append(values, value)
		out[name] = values[len(values)-1 : len(values) : len(values)]
	}
	for _, h := range requestHeaders {
		v := in[h.http]
		if len(v) == 0 || v[0] == "" {
			continue
		}
		if !utf8.ValidString(v[0]) {
			return nil, subjects.Errorf(subjects.KindValidation, "%s: not valid UTF-8", h.http)
		}
		set(h.nats, v[0])
	}
	id := out.Get(subjects.HeaderCallID)
	if id == "" && p.callID != "" {
		id = p.callID
		set(subjects.HeaderCallID, id)
	}
	if e := checkCallID(id); e != nil {
		return nil, e
	}
	x.callID = id
	class, e := x.class(w, p, out)
	if e != nil {
		return nil, e
	}
	if w != wire.Native {
		set(subjects.HeaderWire, string(w))
	}
	return &subjects.Msg{Subject: subjects.Complete(class), Header: out, Data: body}, nil
}

// checkCallID holds what travels in headers and is shown again.
func checkCallID(id string) *subjects.Error {
	if len(id) > subjects.MaxCallID {
		return subjects.Errorf(subjects.KindValidation, "callId: %d bytes, above %d", len(id), subjects.MaxCallID)
	}
	for i := 0; i < len(id); i++ {
		if id[i] < ' ' || id[i] == 0x7f {
			return subjects.Errorf(subjects.KindValidation, "callId: control characters are not allowed in it")
		}
	}
	if !utf8.ValidString(id) {
		return subjects.Errorf(subjects.KindValidation, "callId: not valid UTF-8")
	}
	return nil
}

// class decides who is waiting: the header; else by process on the native
// route; else somebody is.
func (x *exchange) class(w wire.Name, p *peeked, h subjects.Header) (string, *subjects.Error) {
	if v := x.r.Header["X-Llm-Class"]; len(v) > 0 && v[0] != "" {
		if !subjects.ValidClass(v[0]) {
			return "", subjects.Errorf(subjects.KindValidation, "X-LLM-Class: %q is no class; it is %s or %s",
				clip(v[0]), subjects.ClassInteractive, subjects.ClassIngestion)
		}
		return v[0], nil
	}
	if w != wire.Native || x.s.o.ProcessClass == nil {
		return subjects.ClassInteractive, nil
	}
	process := p.process
	if v := h[subjects.HeaderProcess]; len(v) > 0 {
		process = v[0]
	}
	if process == "" {
		process = subjects.UnknownProcess
	}
	if c := x.s.o.ProcessClass(process); subjects.ValidClass(c) {
		return c, nil
	}
	return subjects.ClassInteractive, nil
}

// timeout is how long the edge waits: past the caller's deadline, whose end the
// node says better, and never for ever, should the node be gone.
func (x *exchange) timeout(p *peeked) time.Duration {
	ms := p.timeoutMs
	if v := x.r.Header["X-Llm-Timeout-Ms"]; len(v) > 0 && v[0] != "" {
		ms, _ = strconv.ParseInt(v[0], 10, 64) // a bad one is the node's to refuse
	}
	if ms <= 0 || ms > subjects.MaxTimeoutMs {
		return x.s.o.CallTimeout + grace
	}
	return time.Duration(ms)*time.Millisecond + grace
}

// replyHeaders tells who answered. It comes before the status.
func (x *exchange) replyHeaders(h subjects.Header) {
	out := x.w.Header()
	id := x.callID
	if v := h.Get(subjects.HeaderCallID); v != "" {
		id = v
	}
	if id != "" {
		x.setCallID(id)
	}
	cached := h.Get(subjects.HeaderCached)
	if cached == "" {
		cached = "false"
	}
	v := [3]string{headerSafe(h.Get(subjects.HeaderProvider)), headerSafe(h.Get(subjects.HeaderModel)), headerSafe(cached)}
	for i, name := range [...]string{"X-Llm-Provider", "X-Llm-Model", "X-Llm-Cached"} {
		if v[i] != "" {
			out[name] = v[i : i+1 : i+1]
		}
	}
	for _, w := range h[subjects.HeaderWarnings] {
		out["X-Llm-Warnings"] = append(out["X-Llm-Warnings"], headerSafe(w))
	}
	for name, v := range h {
		if len(v) > 0 && rateLimitHeader(name) {
			out.Set(name, headerSafe(v[0]))
		}
	}
}

// setCallID names the call under our name and the one that SDKs show.
func (x *exchange) setCallID(id string) {
	h, v := x.w.Header(), []string{headerSafe(id)}
	h["X-Llm-Call-Id"], h["X-Request-Id"] = v, v
}

// withTokens gives a native result with the older fields
// tokens{input,output,total} added. What is no result is left alone.
func withTokens(result []byte) []byte {
	end := bytes.LastIndexByte(result, '}')
	u := gjson.GetBytes(result, "usage")
	if end < 0 || !u.IsObject() {
		return result
	}
	// A copy: a node in this process may give the same bytes to another caller.
	b := append(make([]byte, 0, end+96), result[:end]...)
	b = append(b, `,"tokens":{"input":`...)
	b = strconv.AppendInt(b, u.Get("inputTokens").Int(), 10)
	b = append(b, `,"output":`...)
	b = strconv.AppendInt(b, u.Get("outputTokens").Int(), 10)
	b = append(b, `,"total":`...)
	b = strconv.AppendInt(b, u.Get("totalTokens").Int(), 10)
	return append(b, "}}"...)
}
