// The job on pg-boss, with undici. Run by Node in the scratch environment.
//
// Tuned as its manual says for workers: batches that are fetched, worked on at once and completed by one statement each,
// several workers, and no pause between batches while they come back full.
import { PgBoss } from "pg-boss";
import { Agent, request } from "undici";

const WORKERS = 2;
const BATCH = 200;
const QUEUE = "deliver";
const [step, database, receiver, jobs, body, endpoints] = process.argv.slice(2);
const wanted = Number(jobs);
const boss = new PgBoss({ connectionString: database, max: 10 });
boss.on("error", console.error);
await boss.start();

if (step === "fill") {
  await boss.createQueue(QUEUE);
  for (let first = 0; first < wanted; first += 1000) {
    const count = Math.min(1000, wanted - first);
    await boss.insert(
      QUEUE,
      Array.from({ length: count }, (_, n) => ({
        data: { url: `${receiver}/${(first + n) % Number(endpoints)}`, body },
      })),
    );
  }
  await boss.stop();
} else {
  const dispatcher = new Agent({ connections: WORKERS * BATCH });
  const headers = { "content-type": "application/json" };
  let done = 0;
  let finished;
  const all = new Promise((resolve) => (finished = resolve));
  const deliver = async ({ data: { url, body } }) => {
    const response = await request(url, { method: "POST", headers, body, dispatcher });
    await response.body.dump();
    if (response.statusCode >= 300) throw new Error(`status ${response.statusCode}`);
    done += 1;
    if (done === wanted) finished();
  };
  const began = performance.now();
  const cpu = process.cpuUsage();
  const options = { batchSize: BATCH, localConcurrency: WORKERS, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
  await boss.work(QUEUE, options, (batch) => Promise.all(batch.map(deliver)));
  await all;
  await boss.offWork(QUEUE); // returns when the last batches are completed
  const took = (performance.now() - began) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  console.log(JSON.stringify({ seconds: took, cpu_s: (user + system) / 1e6 }));
  await boss.stop();
  await dispatcher.close();
}
