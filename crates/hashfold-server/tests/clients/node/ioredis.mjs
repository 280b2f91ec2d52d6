// Reads from one server and from a cluster with ioredis, and compares every value.

import { Cluster, Redis } from 'ioredis';
import {
  CLUSTER_PORTS, ENTRIES, PORT, check, checkRefused, key, numbers, ofOneSlot, readOn, value, valueOf,
} from './check.mjs';

const client = new Redis({ port: PORT, host: '127.0.0.1' });
check('get', await client.get(key(7)), value(7));
check('absent', await client.get('nope'), null);
check('mget', await client.mget(key(1), 'nope', key(2)), [value(1), null, value(2)]);
const pipeline = client.pipeline();
numbers(500).forEach((i) => pipeline.get(key(i)));
check('pipeline', await pipeline.exec(), numbers(500).map((i) => [null, value(i)]));
check('exists', await client.exists(key(1), 'nope'), 1);
check('dbsize', await client.dbsize(), ENTRIES);
const seen = new Set();
for await (const keys of client.scanStream({ count: 300 })) keys.forEach((it) => seen.add(it));
check('scan', seen.size, ENTRIES);
await checkRefused(() => client.set('a', 'b'));
const fixed = new Redis({ port: PORT, host: '127.0.0.1', username: 'people@1', password: 'x' });
check('a version', await fixed.get(key(7)), value(7));

const nodes = CLUSTER_PORTS.map((port) => ({ host: '127.0.0.1', port }));
const cluster = new Cluster(nodes, { scaleReads: 'all' });
cluster.on('error', () => {});
const keys = ofOneSlot();
check('mget of one slot', await cluster.mget(keys), keys.map(valueOf));
const all = numbers(500).map((i) => cluster.get(key(i)));
check('cluster pipeline', await Promise.all(all), numbers(500).map(value));
await readOn((it) => cluster.get(it));
