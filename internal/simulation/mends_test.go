package simulation

// mends are bugs that the product had, planted again: each takes out what an issue, or this work, has mended.
func mends() []bug {
	return []bug{
		{"the name of a view's step is not compared", "19 A1", "./internal/ownership TestAChangelogThatHasGrownAgain", []change{
			{"internal/ownership/belief.go", "	case l.nameAsked && l.named != e.step:", "	case false:"},
		}},
		{"the leader epoch at a view's position is not compared", "19 A1", "./internal/ownership TestAChangelogThatHasGrownAgain", []change{
			{"internal/ownership/belief.go", "	case l.epochAsked && l.epochEnd < l.read:", "	case false:"},
		}},
		{"how long deletions are kept is what was noted when the view was in sync", "19 A2", "./internal/ownership TestSettingsAreReadWhereTheyAreUsed", []change{
			{"internal/ownership/belief.go", "			keeps = min(keeps, v.Keeps)\n", "			keeps = v.Keeps\n"},
		}},
		{"the lag ends where another producer's transaction begins", "19 A3", "./internal/partition TestLagBehindAnOpenTransaction", []change{
			{"internal/partition/receiver.go", "waits > 0 && (paused || e.Held())", "waits > 0 && paused"},
		}},
		{"a static member is known by its client ID", "19 A4", "./internal/membership TestLiving", []change{
			{"internal/membership/living.go", "if !said && m.InstanceID == nil {", "if true {"},
		}},
		{"transactions are ended of members that the group does not show", "19 A4", "./internal/hanging TestWatchLetsTheLivingBe", []change{
			{"internal/hanging/watch.go", "orphan := all && living[w.Process] && !living[process]", "orphan := !living[process]\n		_ = all"},
		}},
		{"measurements of clocks count however long they took", "19 A5", "./internal/clocks TestWhatIsKnownOfClocksIsRight", []change{
			{"internal/clocks/clocks.go", "took < 0 || took > MaxWidth || stepped.Abs() > maxStep", "took < 0 || stepped.Abs() > maxStep"},
		}},
		{"a view is in sync whatever the lease says", "19 A6", "./statestore TestInSync", []change{
			{"statestore/lease.go", "	at = now.Add(-ago)\n", "	at = now\n	_ = ago\n"},
		}},
		{"a static member is certain without a question to the group", "19 A7", "./internal/membership TestAtMostOneIsCertain", []change{
			{"internal/membership/token.go", "	if err := t.lease.proof.confirm(ctx); err != nil {", "	if err := ctx.Err(); err != nil {"},
		}},
		{"what was missed is forgotten by evictions", "19 A8", "./internal/planner TestWhatWasMissedIsKeptThroughEviction", []change{
			{"internal/planner/horizon.go", "		if it.kept() || it.missed != 0 {", "		if it.kept() {"},
		}},
		{"one timer's records that an own topic refuses for their size end the partition", "19 A9", "./internal/transaction TestStepWhoseOnlyRecordFailsLocally", []change{
			{"internal/transaction/step.go", "	case targets.Gone(err):\n		s.Err = fmt", "	case targets.Gone(err) || targets.TooLarge(err):\n		s.Err = fmt"},
		}},
		{"unknown targets are examined without a limit", "19 A10", "./internal/partition TestUnknownTargetsWaitInTurn", []change{
			{"internal/targets/examine.go", "		if t.examined >= most {\n			return false\n		}\n", ""},
		}},
		{"a trigger is lost when the rules of a zone have changed", "19 A11", "./internal/planner TestATriggerOutlivesTheRulesOfItsZone", []change{
			{"internal/planner/occur.go", "if !movable(t) || t.IsTriggered() {", "if !movable(t) {"},
		}},
		{"a transaction whose end is under way is believed to have ended so", "19 A11", "./internal/hanging TestAMarkerIsWrittenForWhatIsKnown", []change{
			{"internal/hanging/keeper.go", "case found && UnderWay(txn, p) && (how == EndingUnknown || EndingOf(txn, p) != how || !k.overdue(to, p)):", "case false:"},
		}},
		{"an instance that lacks a time zone ends its timers", "19 A11", "./internal/partition TestATimerWaitsForTheRulesOfItsZone", []change{
			{"internal/planner/fire.go", "			if !held && !Reckons(p.recurrences.schedules, it.timer) {", "			if false {"},
			{"internal/planner/occur.go", "			e.Emit, e.After, e.Outcome = nil, t, timer.None\n", "			e.Emit, e.After, e.Outcome = nil, nil, timer.Completed\n"},
		}},
		{"a view reads which rows scans leave out after it has begun", "19 A11", "./statestore TestAViewMissesNothingThatIsParkedMeanwhile", []change{
			{"statestore/view.go", "	low := k.p.low.with(func() {\n		rows, err = k.p.s.db.NewIter(&pebble.IterOptions{LowerBound: k.p.prefix[:], UpperBound: next[:]})\n	})", "	rows, err = k.p.s.db.NewIter(&pebble.IterOptions{LowerBound: k.p.prefix[:], UpperBound: next[:]})\n	_ = k.p.s.db.Metrics() // takes its time\n	low := k.p.low.with(func() {})"},
		}},
		{"each probe has a transactional ID of its own", "19 A11", "./internal/targets TestProbesUseTheirIDsAgain", []change{
			{"internal/targets/prober.go", "	if last := len(p.free) - 1; last >= 0 {", "	if last := len(p.free) - 1; last >= 1<<20 {"},
		}},
		{"the balancer does not hear who has views", "19 A12", "./internal/membership TestViewsGetTheirPartitionsBack", []change{
			{"internal/membership/balance.go", "	d := newUserData(b.process, views, room)\n", "	d := newUserData(b.process, views[:0], room)\n"},
		}},
		{"a body may have any number of timers", "19 B13", "./internal/api TestABodyOfManyElements", []change{
			{"internal/api/decode.go", "		if n == maxTimers {", "		if false {"},
		}},
		{"pages have no limit in bytes", "19 B14", "./internal/api TestPagesAreBounded", []change{
			{"internal/query/page.go", "	if bytes <= 0 {\n		return\n	}\n	for i, t", "	if bytes >= 0 {\n		return\n	}\n	for i, t"},
		}},
		{"what one caller holds is never cut for another", "19 B15", "./internal/api/access TestPoolIsShared", []change{
			{"internal/api/access/pool.go", "	ends := p.victims(w)\n", "	ends := p.victims(w)[:0]\n"},
		}},
		{"a job has no rate", "19 B16", "./internal/api TestRateOfAJob", []change{
			{"internal/api/jobs.go", "if err := one.rate.WaitN(ctx, len(rs)); err != nil {", "if err := ctx.Err(); err != nil {"},
		}},
		{"a wrong password is looked at before the address's tokens", "19 B17", "./internal/api/access TestManyWrongPasswordsAtOnce", []change{
			{"internal/api/access/login.go", "		if wait := l.failures.take(", "		err := l.look(hash, password)\n		if wait := l.failures.take("},
			{"internal/api/access/login.go", "		err := l.look(hash, password)\n		if errors.Is", "		if errors.Is"},
		}},
		{"an Idempotency-Key takes another body", "19 B18", "./internal/api TestIdempotency", []change{
			{"internal/api/batch.go", "	if was == nil || was.Token == y.body {", "	if was == nil || was.Token != \"\" {"},
		}},
		{"a PUT of null cancels", "19 B19", "./internal/api TestPutNeverCancels", []change{
			{"internal/api/request.go", "	if r.Value == nil && !timed {", "	if r.Value == nil && !timed && len(r.Headers) < 0 {"},
		}},
		{"the audit has the level of the log", "19 B20", "./internal/ops TestAuditHasNoLevel", []change{
			{"internal/ops/audit.go", "func (always) Enabled(context.Context, slog.Level) bool { return true }", "func (a always) Enabled(c context.Context, l slog.Level) bool { return a.Handler.Enabled(c, l) }"},
		}},
		{"a problem does not name its request", "19 B20", "./internal/api TestRequestIDInProblems", []change{
			{"internal/api/operation.go", "		p.RequestID = access.RequestOf(c.Context())\n	}\n	e, ok", "		_ = p\n	}\n	e, ok"},
		}},
		{"one address may have all connections", "19 B21", "./internal/api/access TestConnectionsOfAnAddress", []change{
			{"internal/api/access/server.go", "	if l.byNet[from]+n > l.most {", "	if l.byNet[from]+n < 0 {"},
		}},
		{"calls go to any host that an instance has published", "19 B21", "./internal/api/access TestPeersThatAreAllowed", []change{
			{"internal/api/access/forward.go", "	allowed := len(s.peers) == 0 ||", "	allowed := len(s.peers) >= 0 ||"},
		}},
		{"forms of other sites are taken", "19 B21", "./internal/api/console TestOtherSites", []change{
			{"internal/api/console/console.go", "if err := http.NewCrossOriginProtection().Check(v.r); err != nil {", "if err := v.r.Context().Err(); err != nil {"},
		}},
		{"a job is looked for at the instance that is asked", "19 B22", "./internal/api TestJobsOfAllInstances", []change{
			{"internal/api/route/jobs.go", "	if process == r.o.Process || process == \"\" {", "	if process != \"-\" {"},
		}},
		{"an e-mail address counts that the issuer has not verified", "19 B23", "./internal/api/access TestPeopleByTokens", []change{
			{"internal/api/access/issuer.go", "name == \"email\" && verified != true && verified != \"true\" {", "name == \"email\" && verified == false {"},
		}},
		{"a proxy's certificate counts that nobody has verified", "19 B23", "./internal/api/access TestPeopleByAProxy", []change{
			{"internal/api/access/identity.go", "	if p == nil || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {", "	if p == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {"},
		}},
		{"schedule --wait says scheduled, whatever was decided", "19 C24", "./internal/service TestOutcomeOfARequest", []change{
			{"internal/service/commands/outcome.go", "		if w.left != nil && w.left.Offset == w.sent.Offset {", "		if w.sent.Offset >= 0 {"},
		}},
		{"a partition that has failed is said to move", "19 C25", "./internal/service TestFailedPartitionIsNotMoving", []change{
			{"internal/service/apiserver/partition.go", "; ok && notLive.Failed {", "; ok && notLive.Failed && notLive.Reason == \"\" {"},
		}},
		{"a timer off its partition is not looked for", "19 C26", "./internal/service TestTimerOffItsPartition", []change{
			{"internal/api/route/stray.go", "	strays := r.o.Local.Strays(c.Topic)\n", "	strays := r.o.Local.Strays(c.Topic)[:0]\n"},
		}},
		{"who accepts a lost changelog is not told that timers fire again", "19 C27", "./internal/ownership TestLostChangelogNamesTheRestoreFirst", []change{
			{"internal/ownership/local.go", "so what has fired fires again, and what", "so what"},
		}},
		{"the dead letters of a day are called those of an hour", "19 C28", "./internal/api TestDeadLettersAreCounted", []change{
			{"internal/api/counts.go", "		if !at.Before(now.Add(-time.Hour)) {", "		if !at.Before(now.Add(-tallySpan)) {"},
		}},
		{"the overview is green while requests are rejected", "19 C28", "./internal/api/console TestOverviewInAFlood", []change{
			{"internal/api/console/overview.go", "		n.N, n.More = n.N+count, n.More || more\n", "		n.More = n.More || more\n"},
		}},
		{"that a timer has fired is shown as a fault", "19 C29", "./internal/api/console TestPageOfATimerThatIsOver", []change{
			{"internal/api/console/timer.go", "	gone := err != nil && asProblem", "	gone := err == nil && asProblem"},
		}},
		{"a search looks in the first topic alone", "19 C30", "./internal/api/console TestFindLooksInAllTopics", []change{
			{"internal/api/console/timers.go", "		p.Elsewhere = append(p.Elsewhere, topicFound{topic, &n, p.page(\"\", \"\")})\n", "		p.Elsewhere = append(p.Elsewhere[:0], topicFound{topic, &n, p.page(\"\", \"\")})\n"},
		}},
		{"nobody says that a certificate has expired", "19 C31", "./internal/api/access TestExpiredCertificateIsLogged", []change{
			{"internal/api/access/server.go", "	case now.After(c.Leaf.NotAfter):", "	case c.Leaf.NotAfter.IsZero():"},
		}},
		{"a path that is no page comes to the API", "19 C32", "./internal/api/console TestNoSuchPage", []change{
			{"internal/api/console/console.go", "	if !ok && !seeksPage(r, at) {", "	if !ok {"},
		}},
		{"an error is logged with its stacks", "19 C33", "./internal/ops TestErrorsAreSentences", []change{
			{"internal/ops/logger.go", "	if err, is := a.Value.Any().(error); is {", "	if err, is := a.Value.Any().(error); is && err == nil {"},
		}},
		{"an empty value of etf1 deletes", "19 C33a", "./intake TestETF1", []change{
			{"intake/dialect_etf1.go", "	if rec.Value == nil && !decides(rec.Headers) {", "	if len(rec.Value) == 0 && !decides(rec.Headers) {"},
		}},
		{"a time of sky before 1970 stays one", "19 C33a", "./intake TestSky", []change{
			{"intake/dialect_sky.go", "instantText(max(s.time, 0))", "instantText(s.time)"},
		}},
		{"an empty lifetime of NATS is refused", "19 C33a", "./intake TestNATS", []change{
			{"intake/dialect_nats.go", "	if ttl := f.said[natsTTL]; len(ttl) > 0 && string(ttl) != natsNever {", "	if ttl := f.said[natsTTL]; f.has(natsTTL) && string(ttl) != natsNever {"},
		}},
		{"lateness ends with the seal", "19 D34", "./internal/partition TestConsumersWaitForTheCommit", []change{
			{"internal/partition/subpartitions.go", "		oldest, entry = min(oldest, has.Oldest), min(entry, has.Uncommitted)\n", "		oldest = min(oldest, has.Oldest)\n"},
		}},
		{"a topic's partitions are counted at the start alone", "19 D35", "./internal/service TestTopicsThatChangeAreNoticedAtOnce", []change{
			{"internal/service/recheck.go", "			r.counts.WithLabelValues(name).Set(float64(len(is.Partitions)))\n", "			_ = is.Partitions\n"},
		}},
		{"firings behind one look-up take the room of all", "20", "./internal/partition TestFiringsThatWaitForALookUpLeaveRoomForOthers", []change{
			{"internal/partition/backlog.go", "roomOf(b.emitted.Limit() / 2).Over(n)", "roomOf(b.emitted.Limit())"},
		}},
		{"a round of the keeper has no end while steps keep coming", "20", "./internal/partition TestACheckpointBeginsWhileStepsKeepComing", []change{
			{"internal/partition/keeper.go", "	for range maxUnapplied {", "	for {"},
		}},
		{"the runtime may use eight times its share", "20", "./internal/memory TestLimit", []change{
			{"internal/memory/shares.go", "		debug.SetMemoryLimit(s.Heap)\n", "		debug.SetMemoryLimit(8 * s.Heap)\n"},
		}},
		{"what falls due soon may have half of the memory", "20", "./internal/memory TestDivide", []change{
			{"internal/memory/shares.go", "total / 4,", "total / 2,"},
		}},
		{"no lane joins", "20", "./internal/transaction TestLanesJoinAndLeave", []change{
			{"internal/transaction/laneset.go", "c.full >= joinAfter && ready > c.active-c.stuck {", "c.full >= joinAfter && ready < 0 {"},
		}},
		{"a lane that hangs counts", "20", "./internal/transaction TestAHangingLaneDoesNotDelayOthers", []change{
			{"internal/transaction/laneset.go", "	if c.stuck++; c.stuck == c.active {", "	if c.stuck++; c.stuck > c.active {"},
		}},
		{"a wake-up is lost that another lane took", "20", "./internal/transaction TestAWakeThatAnotherLaneTookIsNotLost", []change{
			{"internal/transaction/roster.go", "	r.wakes.Add(1)\n", "	r.wakes.Add(0)\n"},
		}},
		{"intake reads on in an overload", "20", "./internal/partition TestFlowUnderOverload", []change{
			{"internal/partition/flow.go", "	case late, filled >= 0.75 && 4*waited > 5*requests, f.took > longStep:", "	case late && limit < 0:"},
		}},
		{"steps follow each other without an interval", "20", "./internal/transaction TestNothingWaitsLongerThanTheInterval", []change{
			{"internal/transaction/pace.go", "		p.next = at.Add(p.interval)\n", "		p.next = at\n"},
		}},
		{"full steps pause", "20", "./internal/transaction TestFullStepsDoNotPause", []change{
			{"internal/transaction/pace.go", "	if p.next = at; !hurry {", "	if p.next = at; p.interval > 0 {"},
		}},
		{"a source of a former acquisition still seals", "21", "./internal/partition TestALaneOfAFormerAcquisitionSealsNothing", []change{
			{"internal/ownership/steps.go", "if s.source != source || s.draining.Load()", "if s.draining.Load()"},
		}},
		{"a former owner goes on showing its lag", "21", "./internal/partition TestAFormerOwnerShowsNoLag", []change{
			{"internal/partition/partition.go", "	defer p.o.Metrics.dropSeries(p.o.Topics.Request.Name, p.o.Partition)\n", ""},
		}},
		{"what is committed is not counted if a checkpoint fails", "21", "./internal/partition TestWhatIsCommittedIsCountedThoughACheckpointFails", []change{
			{"internal/partition/keeper.go", "		k.count(j)\n		if !c.lost {\n", "		if !c.lost {\n			k.count(j)\n"},
		}},
		{"a late question ends a later acquisition", "21", "./internal/partition/questions TestALateQuestionEndsNoLaterAcquisition", []change{
			{"internal/partition/questions/questions.go", "damaged && a.q.current.Load() == a {", "damaged {"},
		}},
		{"a stop aborts the steps of a revocation under way", "22", "./internal/membership TestStopWaitsForARevocation", []change{
			{"internal/membership/session.go", "func (s *session) giveUp(stopping bool) {\n	s.revoking <- struct{}{}\n	defer func() { <-s.revoking }()\n", "func (s *session) giveUp(stopping bool) {\n"},
		}},
		{"members that all leave wait for each other", "22", "./internal/membership TestNobodyWaitsWhenAllLeave", []change{
			{"internal/membership/leave.go", "len(of.Members) > 0 && !slices", "len(of.Members) < 0 && !slices"},
		}},
		{"a follower goes on with a damaged view", "22", "./internal/ownership TestAFollowerBeginsADamagedViewAgain", []change{
			{"internal/ownership/follower.go", "f.replay.Broken() || statestore.IsCorrupt(err)", "f.replay.Broken() && (err == nil || !statestore.IsCorrupt(err))"},
		}},
		{"a background replay keeps its slot to the end", "22", "./internal/ownership TestALongBackgroundReplayHoldsUpNoOther", []change{
			{"internal/ownership/follower.go", "f.replay.Part, f.replay.Between = backgroundPart,", "f.replay.Part, f.replay.Between = 0,"},
		}},
		{"offsets do not pass markers", "22 A2", "./internal/partition TestPositionPassesMarkers", []change{
			{"internal/partition/lane.go", "	return now < l.at || now >= l.at+passPause // earlier: the clock was set back", "	return false"},
		}},
		{"an assignment that others made is taken", "22 A1", "./internal/membership TestAssignmentOfOthers", []change{
			{"internal/membership/balance.go", "	if err != nil {\n		b.lease.breakUp(fmt.Errorf(\"%w: %w\", ErrLost, err))\n		return nil, err\n	}\n", "	_ = fmt.Errorf\n	_ = err\n"},
		}},
		{"a partition goes to a member whose copy is behind", "22 B4", "./internal/membership TestOwnersHaveCopies", []change{
			{"internal/membership/standbys.go", "	return !h.p.members[member].follows || x.copies[member]\n", "	return true\n"},
		}},
		{"a caller without the token has an instance leave", "22 B5, 33 C13", "./internal/ops TestLeave", []change{
			{"internal/ops/token.go", "subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(token)) == 1", "subtle.ConstantTimeCompare(nil, nil) == 1"},
		}},
		{"what comes during a scan is not counted as due soon", "22 C7", "./internal/upcoming TestCountsAgainstModel", []change{
			{"internal/upcoming/counts.go", "s >= c.base {\n			*c.at(s) += n", "s >= c.base {\n			*c.at(s) = n"},
		}},
		{"the trace of a firing does not lead to its request's", "22 E13", "./internal/tracing TestAFiringBeginsATraceThatIsLinkedToItsRequest", []change{
			{"internal/tracing/tracing.go", "trace.WithLinks(trace.Link{SpanContext: request}), ", ""},
		}},
		{"a small cut of a changelog goes unseen", "23", "./internal/ownership TestAnOwnerNoticesThatItsChangelogWasCut", []change{
			{"internal/ownership/tail.go", "	if first := records[0].Offset; first < t.acked {", "	if first := records[0].Offset; first < 0 {"},
		}},
		{"a step that another leader has taken passes the fence", "23", "./internal/ownership TestALogIsCutAndFilledUpAgain", []change{
			{"internal/ownership/tail.go", "if leader == 0 || leader != t.readEpoch {", "if leader < 0 {"},
		}},
		{"a follower waits below the begin of the log", "23", "./internal/ownership TestAFollowerBehindTheLogsStartBeginsAgain", []change{
			{"internal/ownership/follower.go", "if deleted || f.replay.Broken()", "if deleted = false; deleted || f.replay.Broken()"},
		}},
		{"a look does not ask for our last record", "23", "./internal/ownership TestALogIsCutAndFilledUpAgain", []change{
			{"internal/ownership/tailwatch.go", "ourLast, others := false, false", "ourLast, others := true, false"},
		}},
		{"a look vouches for a leader that it has not read", "23", "./internal/ownership TestALookTrustsNoLeaderThatItHasNotRead", []change{
			{"internal/ownership/tailwatch.go", "} else {\n			leader = min(leader, r.Leader())\n", "} else {\n"},
		}},
		{"a lower leader epoch is not noticed", "23", "./internal/ownership TestANewLeaderIsLookedAtBeforeAStep", []change{
			{"internal/ownership/steps.go", "epoch != 0 && epoch != s.tail.metadataEpoch", "epoch > s.tail.metadataEpoch"},
		}},
		{"records that were sent again count as taken by the leader that is known", "23", "./internal/transaction TestAFenceIsToldTheLeader", []change{
			{"internal/transaction/client.go", "failed := c.failed.Load(leader); failed {", "failed := c.failed.Load(leader); failed && leader < 0 {"},
		}},
		{"a view is too old if no broker says what time it is", "22", "./internal/ownership TestAViewIsNotStaleWithoutATime", []change{
			{"internal/ownership/follower.go", "	if !now.IsZero() {\n		v.past.age = now.Sub(v.view.InSync)\n	}", "	v.past.age = now.Sub(v.view.InSync)"},
			{"internal/ownership/follower.go", "v.past.age -= min(v.past.age, time.Since(f.first))", "v.past.age -= time.Since(f.first)"},
		}},
		{"a leader is believed that its log has no timestamp", "22", "./internal/partlog TestNewestAsksAgainWhileTheLogIsNotEmpty", []change{
			{"internal/partlog/bounds.go", "if err != nil || empty || !at.IsZero() {", "if err != nil || empty || true {"},
		}},
		{"an idle owner does not notice that its changelog was cut", "23", "./internal/ownership TestIdlePartitionNoticesThatItsChangelogWasCut", []change{
			{"internal/ownership/steps.go", "(end > s.tail.next || end < acked) && !s.out", "end > s.tail.next && !s.out"},
		}},
		{"a timer beyond the limit is loaded after each firing", "20", "./internal/planner TestATimerBeyondTheLimitIsNotLoadedAtOnceAgain", []change{
			{"internal/planner/horizon.go", "if k.held() > k.remained/2 {", "if k.held() == k.remained {"},
		}},
		{"a follower passes a cut among claims and markers", "23", "./internal/ownership TestAFollowerSeesThatTheLogWasCutAmongClaims", []change{
			{"internal/replay/replay.go", "epoch != 0 && behind > p.at.Read {", "epoch != 0 && behind < 0 {"},
		}},
		{"a claim repeats an offset that was moved", "23", "./internal/ownership TestAGroupThatTakesOverAgain", []change{
			{"internal/ownership/acquire.go", "	case step == \"\":\n		return last.Position, nil\n", ""},
		}},
		{"a triggered timer hides parked ones", "23", "./internal/partition TestATriggerThatIsNotDueYetHidesNoneThatIs", []change{
			{"internal/partition/park.go", "		if t.FiresAt() > now {\n			later", "		if t.FiresAt() > now || len(later) > 0 {\n			later"},
		}},
		{"a timer that a request has met comes by old rules of its zone", "23", "./internal/planner TestFoundTimersFollowThePresentZoneRules", []change{
			{"internal/planner/requests.go", "		l.p.again(it)\n", ""},
		}},
		{"a timer that was parked comes by old rules of its zone", "23", "./internal/planner TestFoundTimersFollowThePresentZoneRules", []change{
			{"internal/planner/park.go", "		if p.again(it); it.near {", "		if it.near {"},
		}},
		{"a place names one version of a timer, in a step", "23", "./internal/planner TestRulesThatMoveATimerToThePlaceOfAnotherOccurrence", []change{
			{"internal/planner/change.go", "|| c.After != nil && c.After.Occurrence != c.found {", "{"},
		}},
		{"a place names one version of a timer, while it is dirty", "23", "./internal/planner TestRulesThatMoveATimerToThePlaceOfAnotherOccurrence", []change{
			{"internal/planner/dirty.go", "after.Ref() == c.stored && !movable(after) {", "after.Ref() == c.stored {"},
		}},
		{"the group's offset is that from before another group", "23", "./internal/ownership TestAGroupThatTakesOverAgain", []change{
			{"internal/ownership/acquire.go", "	case last.Group != a.o.Group:\n		return last.Position, nil\n", "	case last.Group != a.o.Group:\n		return committed, nil\n"},
		}},
		{"a question whether a round has begun breaks the lease", "23", "./internal/membership TestAskingForAnotherRoundBreaksNoLease", []change{
			{"internal/membership/session.go", "return g.coordinator.heartbeat(ctx, l.sends()) }", "m, err := l.check(); if err != nil { return err }; return g.coordinator.heartbeat(ctx, m) }"},
		}},
		{"a copy that is behind is no better than none", "23", "./internal/membership TestALaggingCopyIsBetterThanNone", []change{
			{"internal/membership/standbys.go", "; best >= 0 || follows {", "; best >= 0 || follows || true {"},
		}},
		{"a copy that waits for a dead owner is behind", "23", "./internal/service TestACopyThatWaitsForADeadOwnerHasCaughtUp", []change{
			{"internal/service/standbys.go", "run.reachedWithin(caughtUp + s.o.session)", "run.reachedWithin(caughtUp)"},
		}},
		{"a background replay waits for the disk with its turn", "23", "./statestore TestAReplayThatNobodyWaitsForLeavesRoom", []change{
			{"statestore/mergewait.go", "waitForRoom(ctx, k, true, replaySpare)", "waitForRoom(ctx, k, true, 0)"},
		}},
		{"a quarantine that is empty leaves transactions open", "23", "./internal/transaction TestATryIsEndedAlsoWhenNobodyWaitsForIt", []change{
			{"internal/transaction/abort.go", "{ time.AfterFunc(time.Until(e.by), e.stop) }", "{ e.stop() }"},
		}},
		{"a question does not wait for the outcome of a step", "23", "./internal/partition TestQuestionsWaitForTheStepThatConsumersMayHaveSeen", []change{
			{"internal/partition/seal.go", "	s.share.Committing = l.questions.Ending\n", ""},
		}},
		{"a firing that is rolled back with the one before it keeps its place", "23", "./internal/partition TestAFiringIsRolledBackWithTheOneBeforeIt", []change{
			{"internal/partition/seal.go", "			e.Partition = to.Partition\n", "			e.Partition = to.Partition\n			k.emissions++\n"},
			{"internal/partition/seal.go", "			k.emissions++\n			k.headers", "			k.headers"},
		}},
		{"a replay waits for an end that was cut off", "23", "./internal/replay TestReplayOfALogThatWasCut", []change{
			{"internal/replay/replay.go", "	case at >= end:\n", "	case true:\n"},
		}},
	}
}
