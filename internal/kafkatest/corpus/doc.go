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
// No code of the product and none of a Go client makes the batches. Small ones are in testdata/batches.txt, which
// test/batches writes; large ones are made here; testdata/java.txt has those of Kafka's own producer. The verdicts are
// in testdata/corpus.txt. TestCorpus (test/contract) takes them from Kafka 4.3.1; with -rewrite it writes the file.
//
// A case with Config needs a topic with these settings.
//
// Only tests may import this package.
package corpus
