package fakeopenai

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// player plays one behaviour to one client. It belongs to the request's goroutine.
type player struct {
	s    *Server
	w    http.ResponseWriter
	ctx  context.Context
	req  *Request
	call call
	out  []byte
}

// play runs the behaviour to its end. It closes the connection by panicking with
// http.ErrAbortHandler, as net/http wants it.
func (p *player) play(b Behaviour) {
	gate := p.s.gate
	if b.Gate != nil {
		gate = b.Gate
	}
	if gate != nil && !gate.pass(p.ctx, p.req.clone()) || !p.pause(b.Latency) {
		p.leave(aborted, Usage{})
		return
	}
	if b.Hang {
		p.hang()
		return
	}
	for k, vs := range b.Header {
		p.w.Header()[http.CanonicalHeaderKey(k)] = vs
	}
	p.w.Header()["X-Request-Id"] = []string{"req_fake_" + strconv.Itoa(p.call.n)}
	switch {
	case b.HTMLError:
		p.whole(&b, orStatus(b.Status, http.StatusBadGateway), "text/html; charset=utf-8", []byte(htmlPage), failed, Usage{})
	case b.Body != "":
		status := orStatus(b.Status, http.StatusOK)
		p.whole(&b, status, "application/json", []byte(b.Body), ended(status), Usage{})
	case b.Status != 0 && b.Status != http.StatusOK:
		p.whole(&b, b.Status, "application/json", appendStatusError(nil, b.Status), failed, Usage{})
	default:
		p.answer(&b)
	}
}

func (p *player) answer(b *Behaviour) {
	a := p.newAnswer(b)
	if p.req.Stream {
		p.stream(b, a)
		return
	}
	p.out = a.appendCompletion(make([]byte, 0, 1024+len(a.content)*p.req.Choices))
	end, u := answered, a.usage
	if b.BrokenJSON {
		p.out, end = p.out[:len(p.out)*2/3], failed
	}
	if b.NoUsage || end != answered {
		u = Usage{}
	}
	p.whole(b, http.StatusOK, "application/json", p.out, end, u)
}

// whole sends a reply that is not a stream.
func (p *player) whole(b *Behaviour, status int, contentType string, body []byte, end outcome, u Usage) {
	if b.CutAfterChunks == BeforeFirst {
		p.cut()
	}
	if p.w.Header()["Content-Type"] == nil {
		p.w.Header()["Content-Type"] = []string{contentType}
	}
	p.w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	p.w.WriteHeader(status)
	if b.CutAfterChunks > 0 {
		_ = p.send(body[:len(body)/2])
		p.cut()
	}
	if b.FirstByteDelay > 0 && (!p.flush() || !p.pause(b.FirstByteDelay)) {
		p.leave(aborted, Usage{})
		return
	}
	if p.ctx.Err() != nil {
		end, u = aborted, Usage{}
	}
	// Booked before the last bytes go out, so that whoever has the answer finds it
	// in the books.
	if !p.leave(end, u) {
		return
	}
	if _, err := p.w.Write(body); err != nil {
		p.s.led.turn(&p.call, aborted)
	}
}

// stream sends the answer as server-sent events.
func (p *player) stream(b *Behaviour, a *answer) {
	h := p.w.Header()
	h["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
	h["Cache-Control"] = []string{"no-cache"}
	p.w.WriteHeader(http.StatusOK)
	if !p.flush() || !p.pause(b.FirstByteDelay) || !p.chunks(b, a) {
		p.leave(aborted, Usage{})
		return
	}
}

// chunks sends the pieces and the end. false = the client has gone.
func (p *player) chunks(b *Behaviour, a *answer) bool {
	if done, ok := p.trouble(b, BeforeFirst); done {
		return ok
	}
	p.out = a.appendRoleChunks(p.out[:0])
	if b.BrokenJSON {
		p.out = a.appendBrokenChunk(p.out)
		return p.last(failed, Usage{})
	}
	for i, n := 0, a.pieces(); i < n; i++ {
		if i > 0 && !p.pause(b.ChunkDelay) {
			return false
		}
		if b.Comments {
			p.out = append(p.out, ": keep-alive\n\n"...)
		}
		p.out = a.appendPiece(p.out, i)
		if !p.send(p.out) {
			return false
		}
		p.out = p.out[:0]
		if done, ok := p.trouble(b, i+1); done {
			return ok
		}
	}
	p.out = a.appendFinishChunks(p.out)
	var u Usage
	if p.req.IncludeUsage && !b.NoUsage {
		u = a.usage
		p.out = a.appendUsageChunk(p.out)
	}
	if !b.NoDone {
		p.out = append(p.out, "data: [DONE]\n\n"...)
	}
	return p.last(answered, u)
}

// trouble does what the behaviour says shall happen after n pieces. done = the
// stream is over; ok = it was not the client who ended it.
func (p *player) trouble(b *Behaviour, n int) (done, ok bool) {
	switch n {
	case b.CutAfterChunks:
		p.cut()
	case b.ErrorAfterChunks:
		p.out = append(p.out[:0], "data: "...)
		p.out = appendError(p.out, "The server had an error while processing your request. Sorry about that!", "server_error", "", "server_error")
		p.out = append(p.out, "\n\n"...)
		return true, p.last(failed, Usage{})
	case b.HangAfterChunks:
		p.hang()
		return true, true
	}
	return false, true
}

// last books the call out and sends the stream's last bytes.
func (p *player) last(end outcome, u Usage) bool {
	if p.ctx.Err() != nil {
		return false
	}
	if !p.leave(end, u) {
		return true
	}
	if !p.send(p.out) {
		p.s.led.turn(&p.call, aborted)
	}
	return true
}

// cut books the call as failed and closes the connection.
func (p *player) cut() {
	p.leave(failed, Usage{})
	panic(http.ErrAbortHandler)
}

func (p *player) hang() {
	<-p.ctx.Done()
	p.leave(aborted, Usage{})
}

// pause waits for d; false = the client has gone.
func (p *player) pause(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// send writes and flushes; false = the client has gone.
func (p *player) send(b []byte) bool {
	if _, err := p.w.Write(b); err != nil {
		return false
	}
	return p.flush()
}

func (p *player) flush() bool {
	f, ok := p.w.(interface{ FlushError() error })
	if !ok {
		return http.NewResponseController(p.w).Flush() == nil
	}
	return f.FlushError() == nil
}

func (p *player) leave(end outcome, u Usage) bool { return p.s.led.leave(&p.call, end, u) }

func ended(status int) outcome {
	if status == http.StatusOK {
		return answered
	}
	return failed
}

func orStatus(status, otherwise int) int {
	if status == 0 {
		return otherwise
	}
	return status
}
