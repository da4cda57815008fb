// Uses the generated client as somebody would who has only read the OpenAPI document.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const [url, topic, target] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url });
const json = { "Content-Type": "application/json" };
const at = (id: string) => ({ topic, id });
const timers = "/v1/topics/{topic}/timers";
const one = "/v1/topics/{topic}/timers/{id}";

// Schedule: as JSON, and with the payload as the body.
const timer: components["schemas"]["NewTimer"] = { value: "hello from TypeScript", after: "1h", target: { topic: target } };
const made = await client.PUT(one, { params: { path: at("ts/one é") }, headers: json, body: timer });
assert.equal(made.response.status, 201);
assert.equal(made.data?.outcome, "scheduled");
const fires = await client.PUT(one, {
  params: { path: at("ts-fires"), header: { "timer-after": "500ms", "timer-target-topic": target, "waterclock-pass": "from=typescript" } },
  headers: { "Content-Type": "application/octet-stream" },
  body: "fires é",
  bodySerializer: (body) => body,
});
assert.equal(fires.data?.outcome, "scheduled");
const written = await client.PUT(one, { params: { path: at("ts-written"), query: { wait: "written" } }, headers: json, body: timer });
assert.equal(written.data?.outcome, "written");

// Get, list, count.
const got = await client.GET(one, { params: { path: at("ts/one é") } });
assert.equal(got.data?.id, "ts/one é");
assert.equal(got.data.state, "pending");
assert.equal(got.data.payload?.text, "hello from TypeScript");
assert.ok(Date.parse(got.data.due) > Date.now());
const page = await client.GET(timers, { params: { path: { topic }, query: { prefix: "ts/", limit: 10 } } });
assert.deepEqual(page.data?.timers.map((t) => t.id), ["ts/one é"]);

// Pause and resume.
const paused = await client.POST(`${one}/pause`, { params: { path: at("ts/one é"), header: { "If-Match": `"${got.data.source}"` } } });
assert.equal(paused.data?.outcome, "paused");
const n = await client.GET(`${timers}/count`, { params: { path: { topic }, query: { prefix: "ts/", state: "paused" } } });
assert.equal(n.data?.count, 1);
const resumed = await client.POST(`${one}/resume`, { params: { path: at("ts/one é") } });
assert.equal(resumed.data?.outcome, "resumed");

// What is wrong is a Problem, with a reason.
const again = await client.PUT(one, { params: { path: at("ts/one é"), header: { "If-None-Match": "*" } }, headers: json, body: timer });
assert.equal(again.response.status, 412);
assert.equal(again.error?.reason, "condition-not-met");
assert.equal(again.error.pending?.id, "ts/one é");
const bad = await client.PUT(one, { params: { path: at("ts-bad") }, headers: json, body: { ...timer, after: "soon" } });
assert.equal(bad.error?.reason, "bad-duration");
assert.equal(bad.error.request, undefined); // it is not written

// Many.
const many = [0, 1, 2].map((i) => ({ ...timer, id: `ts-many-${i}` }));
const posted = await client.POST(timers, { params: { path: { topic } }, body: { timers: many } });
assert.deepEqual(posted.data?.results.map((r) => r.status), [201, 201, 201]);
const dry = await client.POST(`${timers}/cancel`, { params: { path: { topic }, query: { prefix: "ts-many-", "dry-run": true } } });
assert.equal(dry.data?.matching?.count, 3);

// Cancel.
const cancelled = await client.DELETE(one, { params: { path: at("ts/one é") } });
assert.equal(cancelled.data?.outcome, "cancelled");
const gone = await client.GET(one, { params: { path: at("ts/one é") } });
assert.equal(gone.error?.status, 404);

// The service.
const topics = await client.GET("/v1/topics");
assert.deepEqual(topics.data?.topics.map((t) => t.topic), [topic]);
const cluster = await client.GET("/v1/cluster");
assert.ok(cluster.data?.partitions.every((p) => p.state === "live"));
const next = await client.GET("/v1/next", { params: { query: { cron: "0 9 * * mon-fri", zone: "Africa/Lagos", n: 3 } } });
assert.equal(next.data?.next.length, 3);

console.log("all is well");
