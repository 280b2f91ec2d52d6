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

/** Time within which everything must have an answer, in milliseconds. */
const WAIT = 3000;

/** Waits for a promise, but not for ever. */
export function within(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: no answer after ${WAIT} ms`)), WAIT);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Returns the slot of a key without `{`: its CRC-16 modulo 16384. */
function slotOf(text) {
  let crc = 0;
  for (const byte of Buffer.from(text)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc % 16384;
}

/** Returns the keys of some slot that has two or more of them. */
export function ofOneSlot() {
  const bySlot = new Map();
  for (const it of numbers(ENTRIES).map(key)) bySlot.set(slotOf(it), [...(bySlot.get(slotOf(it)) ?? []), it]);
  return [...bySlot.values()].find((keys) => keys.length > 1);
}

/** Returns the value of a key. */
export const valueOf = (text) => value(Number(text.slice('key-'.length)));

/** Checks that a write is refused. */
export async function checkRefused(write) {
  try {
    await write();
  } catch (error) {
    return check('a write', error.message.split(' ')[0], 'NOPERM');
  }
  check('a write', 'accepted', 'refused');
}

/** Reads from a cluster for five seconds, in which a server is killed, and prints how many calls failed, and the
longest time between two right answers. */
export async function readOn(get) {
  for (const i of numbers(ENTRIES)) check('cluster get', await within('get', get(key(i))), value(i));
  console.log('ready');
  let [reads, failed, gap, last] = [0, 0, 0, performance.now()];
  for (const start = performance.now(); performance.now() - start < 5000; reads++) {
    const i = reads % ENTRIES;
    try {
      check('get during a failure', await within('get', get(key(i))), value(i));
      gap = Math.max(gap, performance.now() - last);
      last = performance.now();
    } catch (error) {
      failed++;
      console.error(`  failed: ${error.message}`);
      // Errors that come at once must not keep the client's timers from running.
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
  console.log(JSON.stringify({ reads, failed, gap_ms: Math.max(gap, performance.now() - last) }));
  process.exit(0);
}
