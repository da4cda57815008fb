package partition

import "time"

const (
	// Intake that lags more than this part of the request topic's retention is
	// an alert: what is not read in time is deleted unread.
	retentionAlertNum, retentionAlertDen = 3, 4
	// retentionAlertEvery is how often it is repeated.
	retentionAlertEvery = time.Minute
)

// watchRetention takes the timestamp of the oldest request of a fetch. It is the
// reader's goroutine's.
func (p *Partition) watchRetention(oldest time.Time) {
	retention := p.o.Topics.Request.Retention
	lag := p.o.Now().Sub(oldest)
	if retention <= 0 || lag < retention/retentionAlertDen*retentionAlertNum || time.Since(p.alerted) < retentionAlertEvery {
		return
	}
	p.alerted = time.Now()
	p.o.Metrics.retention(p.o.Topics.Request.Name)
	p.Log.Error("intake lags so far behind that retention may soon delete unread requests: raise retention.ms, or find out what holds up this partition",
		"lag", lag, "retention", retention)
}
