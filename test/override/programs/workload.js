// SPDX-License-Identifier: MIT
// node: objects, strings, typed arrays, zlib, crypto and JSON, in the main thread and in workers.
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const crypto = require('node:crypto');
const zlib = require('node:zlib');

function work(seed, scale) {
    const hash = crypto.createHash('sha256');
    let state = seed >>> 0;
    const next = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0);
    const live = new Map();
    for (let i = 0; i < 60000 * scale; i++) {
        const key = next() % 4000;
        if (live.has(key) && next() % 3 === 0) {
            live.delete(key);
        } else {
            live.set(key, { key, text: 'v'.repeat(next() % 200), list: [i, key, next() % 7] });
        }
    }
    for (const [key, value] of [...live.entries()].sort((a, b) => a[0] - b[0])) {
        hash.update(`${key}:${value.text.length}:${value.list.join()}`);
    }
    for (let i = 0; i < 150 * scale; i++) {
        const buffer = Buffer.alloc(1 + (next() % 200000), i % 251);
        const packed = i % 2 ? zlib.deflateSync(buffer) : zlib.brotliCompressSync(buffer, {
            params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 3 } });
        const back = i % 2 ? zlib.inflateSync(packed) : zlib.brotliDecompressSync(packed);
        if (!back.equals(buffer)) { throw new Error('zlib gave back another buffer'); }
        hash.update(packed);
    }
    const json = JSON.stringify([...live.values()].slice(0, 2000).map((value) => value.key));
    hash.update(JSON.stringify(JSON.parse(json)));
    hash.update(crypto.pbkdf2Sync('secret', 'salt', 2000, 64, 'sha512'));
    return hash.digest('hex');
}

if (!isMainThread) {
    const bytes = new Uint8Array(1 << 20).fill(workerData.seed & 255);
    const digest = work(workerData.seed, workerData.scale);
    parentPort.postMessage({ digest, bytes }, [bytes.buffer]);
} else {
    const scale = Number(process.argv[2] || 1);
    const rounds = async () => {
        for (let round = 0; round < 3 * scale; round++) {
            const workers = [1, 2, 3].map((index) => new Promise((resolve, reject) => {
                const seed = round * 10 + index;
                const worker = new Worker(__filename, { workerData: { seed, scale: 1 } });
                worker.on('message', (message) => resolve(message));
                worker.on('error', reject);
            }));
            for (const message of await Promise.all(workers)) {
                console.log(round, message.digest, message.bytes.reduce((a, b) => a + b, 0));
            }
            global.gc();
        }
        console.log('main', work(99, scale));
        console.log('done');
    };
    rounds().catch((error) => { console.error(error); process.exit(1); });
}
