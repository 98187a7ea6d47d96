package openai

import (
	"bytes"

	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// reader reads one stream.
type reader struct {
	resp *wire.Response
	ev   wire.Event
	one  bool // one choice was asked for
	done bool
}

// Sum implements rest.Reader.
func (r *reader) Sum() *wire.Response { return r.resp }

// Whole implements rest.Reader. Some servers forget the finish reason, but not
// [DONE].
func (r *reader) Whole() bool {
	if r.done && r.resp.FinishReason == "" && r.resp.OutputBytes > 0 {
		r.resp.FinishReason = subjects.FinishStop
	}
	return r.resp.FinishReason != "" && (r.one || r.done)
}

var done = []byte("[DONE]")

// Event implements rest.Reader.
func (r *reader) Event(_ string, data []byte, yield func(*wire.Event) error) error {
	if bytes.Equal(bytes.TrimSpace(data), done) {
		r.done = true
		return rest.ErrDone
	}
	info, ok := wire.ReadOpenAIChunk(data)
	if !ok {
		return subjects.Errorf(subjects.KindProvider, "the stream has an event that is broken JSON")
	}
	if info.Error {
		return rest.ErrorIn(data)
	}
	r.sum(&info)
	r.ev = wire.Event{
		Wire: wire.OpenAIChat, Raw: data, UsageOnly: info.UsageOnly,
		Empty: info.OutputBytes == 0 && info.Finish == "" && !info.UsageOnly,
	}
	return yield(&r.ev)
}

// sum keeps what the chunks say of the whole. Usage may come in any of them and
// the last one counts, but for one that has lost what was said before.
func (r *reader) sum(info *wire.ChunkInfo) {
	r.resp.OutputBytes += info.OutputBytes
	if info.Finish != "" {
		r.resp.FinishReason = info.Finish
	}
	if info.UsageKnown && (!r.resp.UsageKnown || info.Usage != subjects.Usage{}) {
		r.resp.Usage, r.resp.UsageKnown = info.Usage, true
	}
	if r.resp.Model == "" && info.Model != "" {
		r.resp.Model = string(append([]byte(nil), info.Model...))
	}
}
