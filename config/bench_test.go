package config

import "testing"

// BenchmarkLoad reads the built-in default, as a start or a reload does.
func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
