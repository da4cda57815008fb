package partlog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// followed is a log on a fake broker in a bubble, with answers of the test's choice.
type followed struct {
	t  *testing.T
	c  *kfake.Cluster
	cl *kgo.Client
	// fetch and ends change what fetches and questions for the log's end are answered, unless they are nil or return
	// false. Without a response there is no answer.
	fetch func(asked *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition) (answers, changed bool)
	ends  func(r *kmsg.ListOffsetsRequest) (end int64, answers, changed bool)
}

// follow runs a test in a bubble, of a log with records.
func follow(t *testing.T, records int, test func(t *testing.T, f *followed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &followed{t: t}
		f.c, _, f.cl = kafkatest.Bubble(t, 1, "log")
		for range records {
			must(t, f.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "log"}).FirstErr())
		}
		f.c.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			f.c.KeepControl()
			answers, changed := true, false
			resp := answerAll(r.(*kmsg.FetchRequest), func(asked *kmsg.FetchRequestTopicPartition,
				p *kmsg.FetchResponseTopicPartition) {
				if f.fetch != nil {
					answers, changed = f.fetch(asked, p)
				}
			})
			if !answers {
				return nil, nil, true
			}
			return resp, nil, changed
		})
		f.c.ControlKey(kmsg.ListOffsets.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			f.c.KeepControl()
			req := r.(*kmsg.ListOffsetsRequest)
			if f.ends == nil || req.Topics[0].Partitions[0].Timestamp != latest {
				return nil, nil, false
			}
			end, answers, changed := f.ends(req)
			if !answers {
				return nil, nil, true
			}
			return listed(req, end), nil, changed
		})
		test(t, f)
	})
}

// nothing answers a fetch with no records, from a log with these ends.
func nothing(p *kmsg.FetchResponseTopicPartition, end int64) (answers, changed bool) {
	p.HighWatermark, p.LastStableOffset = end, end
	return true, true
}

func (f *followed) reader(from int64) *Reader { return NewReader(f.cl, Log{Topic: "log"}, from) }

// fixed is the end of a log that does not move.
func fixed(end int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return end, nil }
}

// run follows a log. It checks that an error comes last and that pages without records say for how long.
func (f *followed) run(ctx context.Context, r *Reader, end func(context.Context) (int64, error)) (
	records, idle int, took time.Duration, last error) {
	f.t.Helper()
	began := time.Now()
	at := r.Position()
	for page, err := range r.Follow(ctx, end) {
		if last != nil {
			f.t.Fatalf("after %v: %+v, %v", last, page, err)
		}
		if last = err; err == nil && (page.Idle > 0) != (r.Position() == at) {
			f.t.Fatalf("from %d to %d: idle for %s", at, r.Position(), page.Idle)
		}
		if page.Idle > 0 {
			idle++
		}
		at = r.Position()
		records += len(page.Records)
	}
	return records, idle, time.Since(began), last
}

// A record is waited for until its transaction has ended. There is none at an offset that was aborted, or has a marker.
func TestRecord(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		p.write(p.cl, "0")
		tx := p.begin("tx", "1")
		ctx, cancel := context.WithTimeout(p.Ctx, time.Second)
		defer cancel()
		if rec, err := NewReader(p.cl, p.target, 1).Record(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of an open transaction: %v, %v", rec, err)
		}
		tx.end(commit) // 2 is its marker
		tx.begin("3")
		tx.end(abort)
		for offset, want := range []string{"0", "1", "", "", ""} {
			rec, err := NewReader(p.cl, p.target, int64(offset)).Record(p.Ctx)
			if err != nil || (rec != nil) != (want != "") || rec != nil && string(rec.Value) != want {
				t.Errorf("at %d: %v, %v, want %q", offset, rec, err, want)
			}
		}
	})
}

// A leader that does not answer is asked again, and the caller hears of it. A fetch that is too large for a slow link
// gets through: it becomes smaller, and may take longer.
func TestFollowOfASlowLeader(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slow  func(n int, bytes int32) (silent bool, takes time.Duration)
		sizes []int32 // of the fetches, as shares of MaxBytes
	}{
		{"silent for a while", func(n int, _ int32) (bool, time.Duration) { return n <= 2, 0 },
			[]int32{1, 2, 4, 2, 1, 1}},
		{"the link takes a quarter", func(_ int, bytes int32) (bool, time.Duration) {
			return bytes > MaxBytes/4, time.Second
		}, []int32{1, 2, 4, 4, 4, 4}},
		{"a batch takes 7 s", func(int, int32) (bool, time.Duration) { return false, 7 * time.Second },
			[]int32{1, 2, 2, 2, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			follow(t, 0, func(t *testing.T, f *followed) {
				var sizes []int32
				f.ends = func(*kmsg.ListOffsetsRequest) (int64, bool, bool) { return 4, true, true }
				f.fetch = func(asked *kmsg.FetchRequestTopicPartition,
					p *kmsg.FetchResponseTopicPartition) (answers, changed bool) {
					sizes = append(sizes, MaxBytes/asked.PartitionMaxBytes)
					silent, takes := tt.slow(len(sizes), asked.PartitionMaxBytes)
					if silent {
						return false, true
					}
					time.Sleep(takes)
					p.RecordBatches = rebased(batchOf(1, nil, false), asked.FetchOffset)
					return nothing(p, 4)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				records, idle, _, err := f.run(ctx, f.reader(0), fixed(4))
				if err != nil || records != 4 || idle != len(tt.sizes)-4 || !slices.Equal(sizes, tt.sizes) {
					t.Errorf("%d records, %d pages without, %v; fetches of one %v-th, want %v", records, idle, err,
						sizes, tt.sizes)
				}
			})
		})
	}
}

// The high watermark is below an offset that was shown before: a new leader has not heard of it yet. Nothing is lost
// while the log itself has that offset.
func TestFollowWaitsForTheHighWatermark(t *testing.T) {
	follow(t, 3, func(t *testing.T, f *followed) {
		const behind = 4 * CutAfter
		began := time.Now()
		f.fetch = func(asked *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition) (bool, bool) {
			if asked.FetchOffset == 0 || time.Since(began) >= behind {
				return true, false
			}
			return nothing(p, 1)
		}
		f.ends = func(r *kmsg.ListOffsetsRequest) (int64, bool, bool) { return 1, true, r.ReplicaID == consumer }
		r := f.reader(0)
		r.SetMaxBytes(1)
		records, _, took, err := f.run(t.Context(), r, fixed(3))
		if err != nil || records != 3 || took < behind || took > behind+time.Second {
			t.Errorf("%d records after %s, %v", records, took, err)
		}
	})
}

// A gate stays shut while the high watermark is behind the position: a fetch would bring nothing, and no error. It
// opens if the position is beyond the log's end.
func TestMoreBehindTheHighWatermark(t *testing.T) {
	follow(t, 3, func(t *testing.T, f *followed) {
		f.ends = func(r *kmsg.ListOffsetsRequest) (int64, bool, bool) { return 1, true, r.ReplicaID == consumer }
		for at, want := range []bool{true, false, false, false, true} {
			if more, err := f.reader(int64(at)).More(t.Context()); err != nil || more != want {
				t.Errorf("at %d: %v, %v", at, more, err)
			}
		}
	})
}

// A log was cut if its leader's log ends too early for CutAfter, below the offset to reach or below the position.
func TestFollowOfALogThatWasCut(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to int64
		beyond   bool
	}{
		{"below the end", 1, 3, false},
		{"below the position", 2, 3, true},
		{"below the position, at the end", 2, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			follow(t, 1, func(t *testing.T, f *followed) {
				_, idle, took, err := f.run(t.Context(), f.reader(tt.from), fixed(tt.to))
				if !errors.Is(err, ErrLogCut) || errors.Is(err, ErrOutOfRange) != tt.beyond || idle < 2 {
					t.Errorf("%v after %d pages without records", err, idle)
				}
				if took < CutAfter || took > 2*CutAfter {
					t.Errorf("it took %s", took)
				}
				ctx, cancel := context.WithTimeout(t.Context(), CutAfter/2)
				defer cancel()
				_, _, _, err = f.run(ctx, f.reader(tt.from), fixed(tt.to))
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutOfRange) != tt.beyond {
					t.Errorf("cancelled: %v", err)
				}
				time.AfterFunc(CutAfter-time.Second, func() { // a leader that was behind
					for range 2 {
						f.cl.Produce(t.Context(), &kgo.Record{Topic: "log"}, nil)
					}
				})
				if _, _, _, err := f.run(t.Context(), f.reader(tt.from), fixed(tt.to)); err != nil {
					t.Errorf("the log has grown to its end: %v", err)
				}
			})
		})
	}
}

// The end may be asked for because a leader may have less than the one before. A position that has been read, and is
// beyond the log by now, is not at the end.
func TestFollowIsNotAtAnEndBelowItsPosition(t *testing.T) {
	follow(t, 1, func(t *testing.T, f *followed) {
		fetches := 0
		f.fetch = func(_ *kmsg.FetchRequestTopicPartition, p *kmsg.FetchResponseTopicPartition) (bool, bool) {
			if fetches++; fetches > 1 {
				return true, false
			}
			return nothing(p, 5)
		}
		f.ends = func(*kmsg.ListOffsetsRequest) (int64, bool, bool) { return 5, true, fetches == 0 }
		r := f.reader(3)
		if _, _, took, err := f.run(t.Context(), r, r.End); !errors.Is(err, ErrLogCut) || took < CutAfter {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// What is below the log's start does not come back.
func TestFollowFromBelowTheStart(t *testing.T) {
	follow(t, 3, func(t *testing.T, f *followed) {
		_, err := deleteRecords(Log{Topic: "log"}, 2).RequestWith(t.Context(), f.cl)
		must(t, err)
		_, _, took, err := f.run(t.Context(), f.reader(1), fixed(3))
		if !errors.Is(err, ErrOutOfRange) || errors.Is(err, ErrLogCut) || took > time.Second {
			t.Errorf("%v after %s", err, took)
		}
		r, records := f.reader(1), 0
		for page, err := range r.To(t.Context(), 3) {
			if records += len(page.Records); err != nil {
				r.SetPosition(2)
			}
		}
		if records != 1 || r.Position() != 3 {
			t.Errorf("%d records after the start, to %d", records, r.Position())
		}
	})
}

// The error of end is the last, at first and later.
func TestFollowWithoutAnEnd(t *testing.T) {
	refused := errors.New("refused")
	for _, times := range []int{1, 3} {
		follow(t, 1, func(t *testing.T, f *followed) {
			asked := 0
			records, idle, _, err := f.run(t.Context(), f.reader(0), func(context.Context) (int64, error) {
				if asked++; asked == times {
					return 0, refused
				}
				return 3, nil
			})
			if !errors.Is(err, refused) || records != min(times-1, 1) || idle != times-1 {
				t.Errorf("%d records, %d pages without, %v", records, idle, err)
			}
		})
	}
}

// Nothing is fetched through a gate that is shut, and the caller hears of it. It ends with the gate's error.
func TestFollowThroughAGate(t *testing.T) {
	follow(t, 1, func(t *testing.T, f *followed) {
		fetches, began := 0, time.Now()
		f.fetch = func(*kmsg.FetchRequestTopicPartition, *kmsg.FetchResponseTopicPartition) (bool, bool) {
			fetches++
			return true, false
		}
		r := f.reader(0)
		r.SetGate(func(context.Context) (bool, error) { return time.Since(began) > 2*CutAfter, nil })
		records, idle, took, err := f.run(t.Context(), r, fixed(1))
		if err != nil || records != 1 || idle < 10 || fetches != 1 || took < 2*CutAfter {
			t.Errorf("%d records, %d pages without, %d fetches, %v after %s", records, idle, fetches, err, took)
		}
		refused := errors.New("refused")
		r.SetGate(func(context.Context) (bool, error) { return false, refused })
		if _, _, _, err = f.run(t.Context(), r, fixed(2)); !errors.Is(err, refused) {
			t.Error(err)
		}
	})
}

// Follow ends with its context, whatever it waits for.
func TestFollowEndsWithItsContext(t *testing.T) {
	silent := func(*kmsg.FetchRequestTopicPartition, *kmsg.FetchResponseTopicPartition) (answers, changed bool) {
		return false, true
	}
	wait := func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() }
	for _, tt := range []struct {
		name  string
		setup func(f *followed, r *Reader)
		end   func(context.Context) (int64, error)
	}{
		{"for the end", func(*followed, *Reader) {}, wait},
		{"for a gate", func(_ *followed, r *Reader) {
			r.SetGate(func(ctx context.Context) (bool, error) { _, err := wait(ctx); return false, err })
		}, fixed(3)},
		{"for a gate that is shut", func(_ *followed, r *Reader) {
			r.SetGate(func(context.Context) (bool, error) { return false, nil })
		}, fixed(3)},
		{"for a fetch", func(f *followed, _ *Reader) { f.fetch = silent }, fixed(3)},
		{"for records", func(*followed, *Reader) {}, fixed(3)},
		{"for the log's end", func(f *followed, _ *Reader) {
			f.ends = func(*kmsg.ListOffsetsRequest) (int64, bool, bool) { return 0, false, true }
		}, fixed(3)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			follow(t, 1, func(t *testing.T, f *followed) {
				ctx, cancel := context.WithCancel(t.Context())
				const after = 2 * time.Second
				time.AfterFunc(after, cancel)
				r := f.reader(0)
				tt.setup(f, r)
				_, _, took, err := f.run(ctx, r, tt.end)
				if !errors.Is(err, context.Canceled) || took < after || took > after+100*time.Millisecond {
					t.Errorf("%v after %s", err, took)
				}
			})
		})
	}
}

// A caller that has enough leaves the loop, and goes on later.
func TestFollowIsLeft(t *testing.T) {
	follow(t, 2, func(t *testing.T, f *followed) {
		r := f.reader(0)
		r.SetMaxBytes(1)
		for range 2 {
			at := r.Position()
			for page, err := range r.To(t.Context(), 9) {
				if must(t, err); page.Idle > 0 || r.Position() != at+1 {
					t.Errorf("%+v at %d", page, r.Position())
				}
				break
			}
		}
		if r.Position() != 2 {
			t.Errorf("at %d", r.Position())
		}
		for page, err := range r.To(t.Context(), 2) {
			t.Errorf("at the end: %+v, %v", page, err)
		}
	})
}
