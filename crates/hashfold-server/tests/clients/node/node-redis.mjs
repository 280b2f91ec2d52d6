// Reads from one server and from a cluster with node-redis, and compares every value.

import { createClient, createCluster } from 'redis';
import {
  CLUSTER_PORTS, ENTRIES, PORT, check, checkRefused, key, numbers, ofOneSlot, readOn, value, valueOf, within,
} from './check.mjs';

// Without these, commands wait for a server that is gone for as long as it is gone.
const socket = { connectTimeout: 1000, reconnectStrategy: () => 50 };
const commandOptions = { timeout: 1000 };

const url = `redis://127.0.0.1:${PORT}`;
const connect = (options) => within('connect', createClient({ url, socket, commandOptions, ...options }).connect());
const client = await connect({});
check('get', await client.get(key(7)), value(7));
check('absent', await client.get('nope'), null);
check('mget', await client.mGet([key(1), 'nope', key(2)]), [value(1), null, value(2)]);
const pipeline = numbers(500).map((i) => client.get(key(i)));
check('pipeline', await Promise.all(pipeline), numbers(500).map(value));
check('exists', await client.exists([key(1), 'nope']), 1);
check('dbsize', await client.dbSize(), ENTRIES);
const seen = new Set();
for await (const keys of client.scanIterator({ COUNT: 300 })) [keys].flat().forEach((it) => seen.add(it));
check('scan', seen.size, ENTRIES);
await checkRefused(() => client.set('a', 'b'));
const fixed = await connect({ username: 'people@1', password: 'x' });
check('a version', await fixed.get(key(7)), value(7));
for (const it of [client, fixed]) it.destroy();

const cluster = createCluster({
  rootNodes: CLUSTER_PORTS.map((port) => ({ url: `redis://127.0.0.1:${port}` })),
  defaults: { socket },
  commandOptions,
  useReplicas: true,
  // By default, it asks for the other servers only 5 seconds after it has lost one.
  topologyRefreshOnReconnectionAttemptStrategy: 50,
});
for (const event of ['error', 'node-error']) cluster.on(event, () => {});
await within('connect', cluster.connect());
const keys = ofOneSlot();
check('mget of one slot', await cluster.mGet(keys), keys.map(valueOf));
const all = numbers(500).map((i) => cluster.get(key(i)));
check('cluster pipeline', await Promise.all(all), numbers(500).map(value));
await readOn((it) => cluster.get(it));
