// Reads from one server and from a cluster with node-redis, and compares every value.

import { createClient, createCluster } from 'redis';
import { CLUSTER_PORTS, ENTRIES, PORT, check, checkRefused, key, numbers, readOn, value } from './check.mjs';

const url = `redis://127.0.0.1:${PORT}`;
const client = await createClient({ url }).connect();
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
const fixed = await createClient({ url, username: 'people@1', password: 'x' }).connect();
check('a version', await fixed.get(key(7)), value(7));

const rootNodes = CLUSTER_PORTS.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
const cluster = createCluster({ rootNodes, useReplicas: true });
cluster.on('error', () => {});
await cluster.connect();
await readOn((it) => cluster.get(it));
