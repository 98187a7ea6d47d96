package wire

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
)

// text of n bytes, as prompts are: words, line ends, quotes.
func text(n int) string {
	const s = `Explain what this function does and why it is \"slow\".\nKeep it short, and say which line matters most. `
	return strings.Repeat(s, n/len(s)+1)[:n/len(s)*len(s)]
}

func openAIBody(n int) []byte {
	return []byte(`{"model":"gpt-4o-mini","temperature":0.2,"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"` + text(n) + `"}],"stream":true}`)
}

func nativeBody(n int) []byte {
	return []byte(`{"task":"git_history_analysis","process":"bench","temperature":0.2,"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"` + text(n) + `"}],"maxTokens":300}`)
}

func benchParse(b *testing.B, name Name, body []byte) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := Parse(name, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseOpenAI1K(b *testing.B) { benchParse(b, OpenAIChat, openAIBody(1024)) }
func BenchmarkParseNative1K(b *testing.B) { benchParse(b, Native, nativeBody(1024)) }
func BenchmarkParseOpenAI1M(b *testing.B) { benchParse(b, OpenAIChat, openAIBody(1<<20)) }

func BenchmarkPatch1K(b *testing.B) {
	body := openAIBody(1024)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := PatchOpenAIChat(body, "llama-3.3-70b-versatile", true, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPatchNothing1K(b *testing.B) {
	body := openAIBody(1024)
	body = append([]byte(`{"stream_options":{"include_usage":true},`), body[1:]...)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := PatchOpenAIChat(body, "gpt-4o-mini", true, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNativeToOpenAISpliced1K(b *testing.B) {
	r, err := Parse(Native, nativeBody(1024))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := r.OpenAIChat("gpt-4o-mini", true, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNativeToOpenAIDecoded1K(b *testing.B) {
	body := nativeBody(1024)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		r := &Request{Wire: Native, Body: body}
		if _, err := r.OpenAIChat("gpt-4o-mini", true, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPromptPreview64K(b *testing.B) {
	r, err := Parse(OpenAIChat, openAIBody(64<<10))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if r.PromptPreview() == "" {
			b.Fatal("empty")
		}
	}
}

func BenchmarkEstimateInput64K(b *testing.B) {
	r, err := Parse(OpenAIChat, openAIBody(64<<10))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if r.EstimateInput() == 0 {
			b.Fatal("zero")
		}
	}
}

func benchReply() *Response {
	return &Response{Wire: OpenAIChat, Raw: []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1764500000,"model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,"message":{"role":"assistant","content":"` + text(1500) + `","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":210,"completion_tokens":380,"total_tokens":590,"prompt_tokens_details":{"cached_tokens":128,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"service_tier":"default"}`)}
}

func BenchmarkReplySummary1500(b *testing.B) {
	resp := benchReply()
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		resp.UsageKnown, resp.Model = false, ""
		if err := DecodeSummary(resp); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplyToNative1500(b *testing.B) {
	resp := benchReply()
	res := &subjects.Result{CallID: "c", Provider: "openai", Attempts: []subjects.Attempt{{Provider: "openai", Outcome: "ok"}}}
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		resp.decoded = false
		if _, err := EncodeResponse(Native, resp, res); err != nil {
			b.Fatal(err)
		}
	}
}

const benchChunk = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"gpt-4o-mini-2024-07-18","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null}`

func BenchmarkReadChunk(b *testing.B) {
	chunk := []byte(benchChunk)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, ok := ReadOpenAIChunk(chunk); !ok {
			b.Fatal()
		}
	}
}

func benchEncodeChunk(b *testing.B, to Name) {
	ev := &Event{Wire: OpenAIChat, Raw: []byte(benchChunk)}
	enc := NewStreamEncoder(to, &Head{}, "c", "m")
	emit := func([]byte) error { return nil }
	n := 0
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if n++; n%100_000 == 0 {
			enc = NewStreamEncoder(to, &Head{}, "c", "m")
		}
		if err := enc.Event(ev, emit); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeChunkSameWire(b *testing.B) { benchEncodeChunk(b, OpenAIChat) }
func BenchmarkEncodeChunkNative(b *testing.B)   { benchEncodeChunk(b, Native) }

func BenchmarkPartsOfParse1M(b *testing.B) {
	body := openAIBody(1 << 20)
	b.Run("utf8", func(b *testing.B) {
		cpu(b)
		for b.Loop() {
			utf8.Valid(body)
		}
	})
	b.Run("check", func(b *testing.B) {
		cpu(b)
		for b.Loop() {
			check(string(view(body)))
		}
	})
	b.Run("gjson.Valid", func(b *testing.B) {
		cpu(b)
		for b.Loop() {
			gjson.ValidBytes(body)
		}
	})
	b.Run("fields", func(b *testing.B) {
		cpu(b)
		for b.Loop() {
			for range view(body).fields() {
			}
		}
	})
}
