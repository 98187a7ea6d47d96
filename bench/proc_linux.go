package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dieWithParent has the kernel end a child when the bench is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// cpuTime returns the CPU time, user and system, that a process has used. The
// scheduler's own clock is read where the kernel has it (nanoseconds; threads
// that have ended are missing, and Go ends hardly any); else the 10 ms ticks of
// /proc/<pid>/stat.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return cpuTicks(pid)
	}
	var sum time.Duration
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has just ended
		}
		first, _, _ := bytes.Cut(b, []byte(" "))
		ns, err := strconv.ParseInt(string(first), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
		sum += time.Duration(ns)
	}
	if sum == 0 {
		return cpuTicks(pid)
	}
	return sum, nil
}

func cpuTicks(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The program's name, in parentheses, may hold spaces; utime and stime are the
	// 12th and 13th field after it.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("/proc/%d/stat: no numbers where the times are", pid)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

// memoryOf returns the memory of a process.
func memoryOf(pid int) (memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.SplitSeq(string(b), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "VmRSS":
			m.RSS = kilobytes(value)
		case "RssAnon":
			m.Anon = kilobytes(value)
		case "VmHWM":
			m.Peak = kilobytes(value)
		}
	}
	return m, nil
}

func kilobytes(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(s), "kB")), 10, 64)
	return n * 1024
}

// resetPeak starts the peak of memory anew. Where the kernel does not allow it
// the peak is that of the process's whole life.
func resetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// loadAverage is the machine's load over the last minute, for the report.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	return string(first)
}
