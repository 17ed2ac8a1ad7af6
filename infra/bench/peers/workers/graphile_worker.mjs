// The job on graphile-worker, with undici. Run by Node in the scratch environment.
//
// Tuned as its own performance test is (perfTest in its repository): 24 jobs at once and a connection for each, a local
// queue of 500, and ends of jobs written in batches.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { Agent, request } from "undici";

const AT_ONCE = 50;
const [step, database, receiver, jobs, body, endpoints] = process.argv.slice(2);
const wanted = Number(jobs);
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));

if (step === "fill") {
  const utils = await makeWorkerUtils({ connectionString: database, logger });
  await utils.migrate();
  for (let first = 0; first < wanted; first += 1000) {
    const count = Math.min(1000, wanted - first);
    await utils.addJobs(
      Array.from({ length: count }, (_, n) => ({
        identifier: "deliver",
        payload: { url: `${receiver}/${(first + n) % Number(endpoints)}`, body },
      })),
    );
  }
  await utils.release();
} else {
  const dispatcher = new Agent({ connections: AT_ONCE });
  const headers = { "content-type": "application/json" };
  let done = 0;
  let finished;
  const all = new Promise((resolve) => (finished = resolve));
  const deliver = async ({ url, body }) => {
    const response = await request(url, { method: "POST", headers, body, dispatcher });
    await response.body.dump();
    if (response.statusCode >= 300) throw new Error(`status ${response.statusCode}`);
    done += 1;
    if (done === wanted) finished();
  };
  const began = performance.now();
  const cpu = process.cpuUsage();
  const runner = await run({
    logger,
    noHandleSignals: true,
    taskList: { deliver },
    preset: {
      worker: {
        connectionString: database,
        concurrentJobs: AT_ONCE,
        maxPoolSize: 51,
        localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  await all;
  await runner.stop(); // the ends of the last jobs are written when it returns
  const took = (performance.now() - began) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  console.log(JSON.stringify({ seconds: took, cpu_s: (user + system) / 1e6 }));
  await dispatcher.close();
}
