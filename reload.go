package sluice

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/registry"
	"github.com/sluice-llm/sluice/subjects"
)

// settleTime is how long an edited file must be left alone before it is read:
// editors and kubelets write in several steps. A file that cannot be taken over is
// read once more after as long, before that is said.
const settleTime = 250 * time.Millisecond

// reloader takes over edits of the configuration file. One goroutine does it,
// whether the file was seen to change or somebody asked (llm.admin.reload), so
// that edits come into force one after the other. An edit that is broken changes
// nothing and is reported: in the log, as the event llm.config, and to who asked.
type reloader struct {
	n       *Node
	asks    chan reloadAsk
	quit    chan struct{}
	stopped chan struct{}
	broken  bool // the last edit was, and has been told
	// seen is what the file was when its folder last changed; nil = not there.
	seen os.FileInfo
	// watcher is nil when there is nothing to follow. beyond is the folder that the
	// file is in where it is a link out of its own; "" = it is not.
	watcher *fsnotify.Watcher
	beyond  string
}

type reloadAsk struct {
	ctx   context.Context
	reply chan<- reloaded
}

type reloaded struct {
	reply *subjects.ReloadReply
	err   error
}

func newReloader(n *Node) *reloader {
	return &reloader{n: n, asks: make(chan reloadAsk), quit: make(chan struct{}), stopped: make(chan struct{})}
}

// ask reloads at once and says what came of it.
func (r *reloader) ask(ctx context.Context) (*subjects.ReloadReply, error) {
	reply := make(chan reloaded, 1)
	select {
	case r.asks <- reloadAsk{ctx, reply}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-r.quit:
		return nil, subjects.Errorf(subjects.KindNoProvider, "the node is shutting down")
	}
	select {
	case got := <-reply:
		return got.reply, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// start follows the file, when there is one.
func (r *reloader) start() {
	var edits <-chan fsnotify.Event
	var faults <-chan error
	var w *fsnotify.Watcher
	if file := r.n.o.configFile; file != "" {
		var err error
		if w, err = fsnotify.NewWatcher(); err == nil {
			err = w.Add(filepath.Dir(file)) // the folder: a file that is replaced is another one
		}
		if err != nil {
			r.n.log.Warn("edits of the configuration are not noticed; ask for a reload (llm.admin.reload)", "error", err)
		} else {
			edits, faults, r.watcher = w.Events, w.Errors, w
			r.look()
		}
	}
	go func() {
		defer close(r.stopped)
		if w != nil {
			defer w.Close()
		}
		r.run(edits, faults)
	}()
}

func (r *reloader) stop() {
	close(r.quit)
	<-r.stopped
}

func (r *reloader) run(edits <-chan fsnotify.Event, faults <-chan error) {
	settle := time.NewTimer(settleTime) // an edit may have come between the first reading and the watch
	if edits == nil {
		settle.Stop()
	}
	again := false // it was broken at the last look
	for {
		select {
		case ev := <-edits:
			if r.concerns(ev) {
				again = false
				settle.Reset(settleTime)
			}
		case <-settle.C:
			_, err := r.reload(context.Background(), again)
			if err != nil && !again {
				again = true
				settle.Reset(settleTime)
			}
		case err := <-faults:
			r.n.log.Warn("edits of the configuration may go unnoticed; ask for a reload (llm.admin.reload)", "error", err)
		case a := <-r.asks:
			reply, err := r.reload(a.ctx, true)
			a.reply <- reloaded{reply, err}
		case <-r.quit:
			return
		}
	}
}

// concerns reports whether a change in the folder is one of the file: by its name,
// or because it is a link, perhaps over several, that now leads to another file.
// All else in the folder, such as a log that is written there all the time, must
// not keep an edit from settling.
func (r *reloader) concerns(ev fsnotify.Event) bool {
	before := r.seen
	r.look()
	if filepath.Base(ev.Name) == filepath.Base(r.n.o.configFile) {
		return true
	}
	if before == nil || r.seen == nil {
		return before != r.seen
	}
	return !os.SameFile(before, r.seen) || !before.ModTime().Equal(r.seen.ModTime()) || before.Size() != r.seen.Size()
}

// look notes what the file is now, and follows it where it is a link into another
// folder: an edit in place is seen there alone.
func (r *reloader) look() {
	file := r.n.o.configFile
	r.seen, _ = os.Stat(file) // nil when it is not there
	full, err := filepath.Abs(file)
	if err != nil {
		return
	}
	at, err := filepath.EvalSymlinks(full)
	if err != nil {
		return
	}
	own, err := filepath.EvalSymlinks(filepath.Dir(full))
	beyond := filepath.Dir(at)
	if err != nil || beyond == own {
		beyond = ""
	}
	if beyond == r.beyond {
		return
	}
	if r.beyond != "" {
		_ = r.watcher.Remove(r.beyond) // fails for a folder that is gone, which ended its watch
	}
	r.beyond = beyond
	if beyond == "" {
		return
	}
	if err := r.watcher.Add(beyond); err != nil {
		r.n.log.Warn("edits of the configuration may go unnoticed; ask for a reload (llm.admin.reload)", "folder", beyond, "error", err)
	}
}

// reload reads the file and takes it over. A fault is told where say is set.
func (r *reloader) reload(ctx context.Context, say bool) (*subjects.ReloadReply, error) {
	n := r.n
	old := n.engine.Config()
	cfg, err := config.Load(config.Options{File: n.o.configFile, Environ: n.o.environ})
	if err == nil && old.Equal(cfg) {
		if r.broken {
			r.tell(nil)
		}
		return &subjects.ReloadReply{File: n.o.configFile, Notes: cfg.Notes}, nil
	}
	if err == nil {
		err = r.takeOver(ctx, old, cfg)
	}
	if err != nil {
		if say {
			r.tell(err)
		}
		return nil, subjects.Errorf(subjects.KindValidation, "the configuration stays as it is: %w", err)
	}
	n.log.Info("the configuration was taken over", "file", n.o.configFile, "changed", strings.Join(config.Changed(old, cfg), ", "))
	for _, note := range cfg.Notes {
		n.log.Warn("configuration", "note", note)
	}
	r.tell(nil)
	return &subjects.ReloadReply{Changed: true, File: n.o.configFile, Notes: cfg.Notes}, nil
}

// takeOver puts cfg in force. What can fail comes first: either all of it is
// taken over or nothing.
func (r *reloader) takeOver(ctx context.Context, old, cfg *config.Config) error {
	n := r.n
	if err := n.checkHosts(cfg); err != nil {
		return err
	}
	added := slices.DeleteFunc(slices.Clone(cfg.Order), func(id string) bool { return slices.Contains(old.Order, id) })
	if n.nats != nil && len(added) > 0 {
		if err := n.nats.guard(added); err != nil {
			return fmt.Errorf("providers %s: the NATS server does not take their permissions over (%w); restart the node", strings.Join(added, ", "), err)
		}
	}
	if old.Usage.StreamMaxBytes != cfg.Usage.StreamMaxBytes {
		if err := n.makeStream(ctx, cfg); err != nil {
			return err
		}
	}
	if len(n.o.hosts) == 0 {
		if err := n.service.host(added); err != nil {
			return err
		}
	}
	all := registry.Renew(n.providers, old, cfg, n.made)
	if err := n.engine.Reconfigure(ctx, cfg, all); err != nil {
		registry.CloseDropped(all, n.providers)
		return err
	}
	registry.CloseDropped(n.providers, all)
	n.providers = all
	return nil
}

// tell reports what became of an edit: nil = it is in force.
func (r *reloader) tell(err error) {
	n := r.n
	r.broken = err != nil
	ev := &subjects.ConfigEvent{OK: err == nil, File: n.o.configFile, At: subjects.Time{Time: time.Now()}}
	if err != nil {
		ev.Error = err.Error()
		n.log.Error("an edit of the configuration is broken; it stays as it is", "error", err)
	}
	n.events.emit(subjects.ConfigStatus, ev)
}
