// SPDX-License-Identifier: MIT
// Node as an allocator sees it. Plain objects live in V8's own heap; the allocator gets the buffers,
// compression, the parser's and compiler's zones, and the tables behind maps and strings.
//
// Source   own script.
// Checks   throws on any wrong result.
'use strict';

const assert = require('assert');
const zlib = require('zlib');
const crypto = require('crypto');

let state = 1;
const random = (limit) => (state = (state * 48271) % 2147483647) % limit;

const makeTree = (depth) =>
  depth === 0 ? {} : { left: makeTree(depth - 1), right: makeTree(depth - 1) };
const count = (tree) => (tree.left ? 1 + count(tree.left) + count(tree.right) : 1);
for (let i = 0; i < 20; i++) {
  assert.strictEqual(count(makeTree(14)), 32767);
}

const held = [];
for (let i = 0; i < 200000; i++) {
  const buffer = Buffer.allocUnsafeSlow(64 + random(8192)).fill(i & 255);
  held[random(2000)] = buffer;
  assert.strictEqual(buffer[0], i & 255);
}

const records = [];
for (let i = 0; i < 40000; i++) {
  records.push({ id: i, name: 'name-' + random(1e6), tags: [random(9), random(99), String(random(999))] });
}
const text = JSON.stringify(records);
assert.strictEqual(JSON.parse(text).length, records.length);
for (let i = 0; i < 6; i++) {
  const part = text.slice(0, 400000 + i * 1000);
  assert.strictEqual(zlib.inflateSync(zlib.deflateSync(part)).length, part.length);
  crypto.createHash('sha256').update(part).digest('hex');
}
for (let i = 0; i < 4000; i++) {
  const sum = new Function('a', `let s = ${i}; for (let k = 0; k < a; k++) { s += k * ${i}; } return s;`);
  assert.strictEqual(sum(3), i + 3 * i);
}
const map = new Map();
for (let i = 0; i < 600000; i++) {
  map.set('key' + random(50000), [i]);
}
assert(map.size <= 50000);
