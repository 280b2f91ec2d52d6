// What programs of client libraries share: the values, and a loop of reads during a failure.

export const ENTRIES = Number(process.env.ENTRIES);
export const PORT = Number(process.env.PORT);
export const CLUSTER_PORTS = process.env.CLUSTER_PORTS.split(',').map(Number);

export const key = (i) => `key-${i}`;
export const value = (i) => `value ${i} of version 1`;
export const numbers = (count) => [...Array(count).keys()];

export function check(what, got, expected) {
  const [left, right] = [got, expected].map((it) => JSON.stringify(it));
  if (left !== right) {
    console.error(`${what}: expected ${right}, got ${left}`);
    process.exit(1);
  }
}

/** Checks that a write is refused. */
export async function checkRefused(write) {
  try {
    await write();
  } catch (error) {
    return check('a write', error.message.split(' ')[0], 'NOPERM');
  }
  check('a write', 'accepted', 'refused');
}

/** Reads from a cluster for five seconds, in which a server is killed, and prints how many calls failed. */
export async function readOn(get) {
  for (const i of numbers(ENTRIES)) check('cluster get', await get(key(i)), value(i));
  console.log('ready');
  let [reads, failed, longest] = [0, 0, 0];
  for (const start = performance.now(); performance.now() - start < 5000; reads++) {
    const [i, before] = [reads % ENTRIES, performance.now()];
    try {
      check('get during a failure', await get(key(i)), value(i));
    } catch {
      failed++;
    }
    longest = Math.max(longest, performance.now() - before);
  }
  console.log(JSON.stringify({ reads, failed, longest_ms: longest }));
  process.exit(0);
}
