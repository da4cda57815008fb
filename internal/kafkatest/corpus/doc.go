// Package corpus holds batches of records as a producer may write them, sound ones and broken ones, with the reactions
// of a real broker and of Kafka's own consumer:
//
//	for _, c := range corpus.Cases() {
//		verdict := corpus.Verdicts()[c.Name]
//		if !verdict.Taken() {
//			continue // no broker lets it into a log
//		}
//		err := corpus.Produce(ctx, cl, topic, id, 0, c.Batch(corpus.Nobody(time.Now())))
//		// … read the topic: the batch, and the record behind it
//	}
//
// The batches are bytes made here, by no code of the product and by none of a Kafka client. The verdicts are in
// testdata/corpus.txt. TestCorpus (test/contract) takes them from Kafka 4.3.1; with -rewrite it writes
// the file.
//
// A case with Config needs a topic with these settings.
//
// Only tests may import this package.
package corpus
