package wire

import (
	"strconv"
	"testing"
)

func BenchmarkGeminiEncode1K(b *testing.B) {
	chat := nativeChat(b, string(nativeBody(1024)))
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, _, err := EncodeGemini(chat, "gemini-2.5-flash"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGeminiReply1500(b *testing.B) {
	body := []byte(`{
  "candidates": [
    {
      "content": {
        "parts": [
          {
            "text": "` + text(1500) + `"
          }
        ],
        "role": "model"
      },
      "finishReason": "STOP",
      "index": 0
    }
  ],
  "usageMetadata": {
    "promptTokenCount": 210,
    "candidatesTokenCount": 380,
    "totalTokenCount": 700,
    "cachedContentTokenCount": 128,
    "promptTokensDetails": [
      {
        "modality": "TEXT",
        "tokenCount": 210
      }
    ],
    "thoughtsTokenCount": 110
  },
  "modelVersion": "gemini-2.5-flash",
  "responseId": "Il0taoSYJ5Cez7IPvf"
}
`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := ReadGemini(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGeminiStream200(b *testing.B) {
	chunks := make([][]byte, 200)
	for i := range chunks {
		finish := ""
		if i == len(chunks)-1 {
			finish = `,"finishReason": "STOP"`
		}
		chunks[i] = []byte(`{"candidates": [{"content": {"parts": [{"text": " word ` + strconv.Itoa(i) + `"}],"role": "model"}` + finish + `,"index": 0}],"usageMetadata": {"promptTokenCount": 210,"candidatesTokenCount": ` + strconv.Itoa(i) + `,"totalTokenCount": 320,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 210}],"thoughtsTokenCount": 110},"modelVersion": "gemini-2.5-flash","responseId": "Il0taoSYJ5Cez7IPvf"}`)
	}
	n := 0
	yield := func(ev *Event) error { n += len(ev.Text); return nil }
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		var s GeminiStream
		for _, c := range chunks {
			if _, err := s.Chunk(c, yield); err != nil {
				b.Fatal(err)
			}
		}
		if !s.Whole() || s.Sum().OutputBytes == 0 {
			b.Fatal("not whole")
		}
	}
}
