package persistence

import (
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/s2"
)

// The first byte of a row's value. Rows are mostly the names of their fields, so
// they are packed against a dictionary of these: a third of the bytes on disk,
// and through the memory tables and compactions on the way there.
const (
	rowPlain  = 1 // JSON
	rowPacked = 2 // JSON as an S2 block with rowDict
)

// rowDict must never change: rows on disk need it. Another one is another format.
var rowDict = s2.MakeDict([]byte(rowDictText), nil)

const rowDictText = `"CANCELLED","NO_PROVIDER","PROVIDER_UNAVAILABLE","PROVIDER_ERROR","TIMEOUT","RATE_LIMITED",` +
	`"QUOTA_EXHAUSTED","AUTH_ERROR","outcome":"skipped","reason":"ms":0},{"provider":"copilot-subscription",` +
	`"api-key","local","mock","gemini-2.5-flash","gpt-4.1-mini","claude-haiku-4.5","claude-opus-4.1","premium","fast",` +
	`"ingestion","custom","groq","openai","anthropic","ollama","github-models","true,"` +
	`{"id":"","timestamp":"2026-01-01T00:00:00.000Z","provider":"claude-code","model":"claude-sonnet-4.5",` +
	`"model_raw":"claude-sonnet-4-5-20250929","process":"unknown","task":"","class":"interactive","tier":"standard",` +
	`"subscription":"max-subscription","input_tokens":0,"output_tokens":0,"total_tokens":0,"cache_read_tokens":0,` +
	`"cache_write_tokens":0,"reasoning_tokens":0,"tokens_estimated":false,"cost_usd":null,"saved_usd":0.0,` +
	`"latency_ms":1000.0,"queued_ms":0.0,"overhead_ms":0.0,"cached":false,"partial":false,"outcome":"ok",` +
	`"chain_position":0,"attempt_trail":[{"provider":"claude-code","model":"claude-sonnet-4.5","outcome":"ok","ms":1000}],` +
	`"prompt_preview":"`

// packer makes rows' values of their JSON. It keeps a buffer.
type packer struct{ buf []byte }

// pack returns a new slice: Badger keeps it.
func (p *packer) pack(data []byte) []byte {
	if n := s2.MaxEncodedLen(len(data)); n > len(p.buf) {
		p.buf = make([]byte, n)
	}
	format, body := byte(rowPacked), rowDict.Encode(p.buf, data)
	if len(body) >= len(data) {
		format, body = rowPlain, data
	}
	value := make([]byte, 1, 1+len(body))
	value[0] = format
	return append(value, body...)
}

// unpackRow makes a copy of a row's JSON from its value.
func unpackRow(value []byte) (json.RawMessage, error) {
	if len(value) < 2 {
		return nil, fmt.Errorf("a row of %d bytes: %w", len(value), errFormat)
	}
	switch body := value[1:]; value[0] {
	case rowPlain:
		return append(json.RawMessage(nil), body...), nil
	case rowPacked:
		if n, err := s2.DecodedLen(body); err != nil || n > maxRecord {
			return nil, fmt.Errorf("a packed row of %d bytes: %w", len(value), errFormat)
		}
		row, err := rowDict.Decode(nil, body)
		if err != nil {
			return nil, fmt.Errorf("a packed row: %w: %w", errFormat, err)
		}
		return row, nil
	}
	return nil, fmt.Errorf("a row of format %d: %w", value[0], errFormat)
}
