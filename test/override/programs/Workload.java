// SPDX-License-Identifier: MIT
// java: native memory by direct buffers, deflaters and threads, under any collector.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Workload {
    static long state(long seed) {
        return seed * 6364136223846793005L + 1442695040888963407L;
    }

    static long pack(long seed) throws Exception {
        byte[] input = new byte[(int) (1000 + (seed >>> 40) % 60000)];
        long s = seed;
        for (int i = 0; i < input.length; i++) {
            s = state(s);
            input[i] = (byte) ((s >>> 60) + (i % 11));
        }
        Deflater deflater = new Deflater((int) ((seed >>> 33) % 9) + 1);
        deflater.setInput(input);
        deflater.finish();
        byte[] packed = new byte[input.length + 1000];
        int length = deflater.deflate(packed);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(packed, 0, length);
        byte[] output = new byte[input.length];
        int got = inflater.inflate(output);
        inflater.end();
        CRC32 crc = new CRC32();
        crc.update(output, 0, got);
        CRC32 expected = new CRC32();
        expected.update(input);
        if (got != input.length || crc.getValue() != expected.getValue()) {
            throw new Exception("inflate gave back other bytes");
        }
        return crc.getValue() * 31 + length;
    }

    static long task(int index, int scale) throws Exception {
        long sum = 0;
        Map<Long, ByteBuffer> buffers = new HashMap<>();
        long s = index + 1;
        for (int i = 0; i < 400 * scale; i++) {
            s = state(s);
            sum = sum * 17 + pack(s);
            ByteBuffer buffer = ByteBuffer.allocateDirect((int) ((s >>> 44) % 100000) + 8);
            buffer.putLong(0, s);
            ByteBuffer old = buffers.put((s >>> 50) % 60, buffer);
            if (old != null) {
                sum ^= old.getLong(0);
            }
        }
        return sum;
    }

    static volatile long born = 0;

    public static void main(String[] arguments) throws Exception {
        int scale = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 1;
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            final int index = i;
            results.add(pool.submit(() -> task(index, scale)));
        }
        for (Future<Long> result : results) {
            System.out.println(Long.toHexString(result.get()));
        }
        pool.shutdown();
        for (int i = 0; i < 500 * scale; i++) {
            final int index = i;
            Thread thread = new Thread(() -> {
                synchronized (Workload.class) {
                    born += index;
                }
            });
            thread.start();
            if (i % 4 == 3) {
                thread.join();
            }
        }
        Thread.sleep(200);
        StringBuilder text = new StringBuilder();
        Map<String, List<Integer>> map = new HashMap<>();
        for (int i = 0; i < 200000 * scale; i++) {
            map.computeIfAbsent("k" + i % 5000, k -> new ArrayList<>()).add(i);
        }
        map.keySet().stream().sorted().limit(10).forEach(
            k -> text.append(k).append(map.get(k).size()).append(' '));
        synchronized (Workload.class) {
            System.out.println(text.toString() + born);
        }
        System.out.println("done");
    }
}
