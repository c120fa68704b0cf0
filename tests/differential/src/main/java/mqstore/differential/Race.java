package mqstore.differential;

import com.alibaba.fastjson2.JSONObject;
import java.io.File;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.index.IndexService;

/** The work that {@code benches/compare.py} times, done by RocketMQ: each answer is the seconds it took. */
final class Race {
    static final String TOPIC = "BenchTopic";
    private static final int QUEUES = 8;
    private static final int SEED = 7;
    /** How many messages are put before the clock starts, so that the first files are there and warm. */
    private static final int BEFORE = 5000;

    private Race() {
    }

    static void run(JSONObject command, String root, JSONObject parameters, JSONObject done) throws Exception {
        int count = command.getIntValue("count");
        double seconds = switch (command.getString("work")) {
            case "append" -> append(root, parameters, count, command.getIntValue("bodyBytes"),
                command.getIntValue("threads", 1), command.getIntValue("distinct", BEFORE + count),
                command.getBooleanValue("randomKeys"));
            case "index-put" -> indexPut(root, count);
            case "key-query" -> keyQuery(root, parameters, count, command.getIntValue("of"));
            case "scan" -> scan(root, parameters, count, false);
            case "decode" -> scan(root, parameters, count, true);
            case "recover" -> recover(root, parameters, count);
            default -> throw new IllegalArgumentException("work " + command.getString("work"));
        };
        done.put("seconds", seconds);
    }

    /** Looks random and is the same in all three programs. */
    private static long scattered(long number) {
        return number * 0x9E3779B97F4A7C15L;
    }

    /** The key of message {@code number}: an order's id, which is random. */
    private static String key(int number) {
        return String.format("order-%016x", scattered(number));
    }

    /** Counts up, as RocketMQ's client makes it, or is random too. */
    private static String uniqueKey(int number, boolean random) {
        return random
            ? String.format("%016X%016X", scattered(~number), scattered(number + 1L))
            : String.format("7F0000010000%020d", number);
    }

    private static MessageExtBrokerInner message(int number, byte[] body, boolean randomKeys) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(number & (QUEUES - 1));
        message.setBody(body);
        message.setTags("paid");
        message.setKeys(key(number));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
            uniqueKey(number, randomKeys));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 50_000));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10_911));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static double append(String root, JSONObject parameters, int count, int bodyBytes, int threads,
            int distinct, boolean randomKeys) throws Exception {
        byte[] body = new byte[bodyBytes];
        new Random(SEED).nextBytes(body);
        List<MessageExtBrokerInner> messages = new ArrayList<>(distinct);
        for (int number = 0; number < distinct; number++) {
            messages.add(message(number, body, randomKeys));
        }
        try (OpenStore opened = OpenStore.ready(root, parameters)) {
            AtomicInteger refused = new AtomicInteger();
            put(opened.store, messages, 0, BEFORE, threads, refused);
            long begin = System.nanoTime();
            put(opened.store, messages, BEFORE, BEFORE + count, threads, refused);
            double seconds = (System.nanoTime() - begin) / 1e9;
            if (refused.get() > 0) {
                throw new IllegalStateException(refused + " of " + count + " puts were refused");
            }
            return seconds;
        }
    }

    /**
     * Puts messages {@code begin} to {@code end} from so many threads, over and over where there are fewer, and waits
     * until they are in queues and index.
     */
    private static void put(DefaultMessageStore store, List<MessageExtBrokerInner> messages, int begin, int end,
            int threads, AtomicInteger refused) throws InterruptedException {
        if (threads == 1) {
            putEach(store, messages, begin, end, 1, refused);
        } else {
            CountDownLatch ended = new CountDownLatch(threads);
            for (int first = begin; first < begin + threads; first++) {
                int from = first;
                new Thread(() -> {
                    putEach(store, messages, from, end, threads, refused);
                    ended.countDown();
                }).start();
            }
            ended.await();
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.onSpinWait();
        }
    }

    private static void putEach(DefaultMessageStore store, List<MessageExtBrokerInner> messages, int from, int end,
            int step, AtomicInteger refused) {
        for (int number = from; number < end; number += step) {
            PutMessageResult result = store.putMessage(messages.get(number % messages.size()));
            if (!result.isOk()) {
                refused.incrementAndGet();
            }
        }
    }

    private static double indexPut(String root, int count) throws Exception {
        String[] keys = new String[BEFORE + count];
        Random random = new Random(SEED);
        for (int number = 0; number < keys.length; number++) {
            keys[number] = TOPIC + "#order-" + random.nextInt();
        }
        new File(root).mkdirs();
        IndexFile file = new IndexFile(root + File.separator + "20231001000000000", 5_000_000, 20_000_000, 0, 0);
        put(file, keys, 0, BEFORE);
        long begin = System.nanoTime();
        put(file, keys, BEFORE, keys.length);
        double seconds = (System.nanoTime() - begin) / 1e9;
        file.destroy(0);
        return seconds;
    }

    private static void put(IndexFile file, String[] keys, int from, int to) {
        for (int number = from; number < to; number++) {
            if (!file.putKey(keys[number], number * 1024L, 1_700_000_000_000L + number)) {
                throw new IllegalStateException("full at " + number);
            }
        }
    }

    /** Asks the index for {@code count} keys of a store of {@code of} messages. */
    private static double keyQuery(String root, JSONObject parameters, int count, int of) throws Exception {
        try (OpenStore opened = OpenStore.ready(root, parameters)) {
            String[] keys = new String[count];
            Random random = new Random(SEED);
            for (int number = 0; number < count; number++) {
                keys[number] = key(random.nextInt(of));
            }
            IndexService index = new IndexService(opened.store);
            index.load(true);
            long found = 0;
            long begin = System.nanoTime();
            for (String key : keys) {
                found += index.queryOffset(TOPIC, key, 32, 0, Long.MAX_VALUE).getPhyOffsets().size();
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            if (found < count) {
                throw new IllegalStateException("found " + found + " of " + count);
            }
            return seconds;
        }
    }

    private static double scan(String root, JSONObject parameters, int count, boolean objects) throws Exception {
        try (OpenStore opened = OpenStore.ready(root, parameters)) {
            var log = opened.store.getCommitLog();
            long at = log.getMinOffset();
            long end = log.getMaxOffset();
            long messages = 0;
            long begin = System.nanoTime();
            while (at < end) {
                SelectMappedBufferResult file = log.getData(at);
                ByteBuffer bytes = file.getByteBuffer();
                int size = file.getSize();
                int done = 0;
                while (done < size) {
                    if (objects) {
                        bytes.position(done);
                        if (bytes.remaining() < 8 || bytes.getInt(done + 4) == BLANK) {
                            done = size;
                            break;
                        }
                        MessageExt message = MessageDecoder.decode(bytes, true, false, false);
                        done += message.getStoreSize();
                    } else {
                        var request = log.checkMessageAndReturnSize(bytes, true, false, true);
                        if (!request.isSuccess() || request.getMsgSize() == 0) {
                            done = size;
                            break;
                        }
                        done += request.getMsgSize();
                    }
                    messages++;
                }
                file.release();
                at = log.rollNextFile(at);
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            if (messages != count) {
                throw new IllegalStateException("read " + messages + " of " + count);
            }
            return seconds;
        }
    }

    private static final int BLANK = -875286124;

    private static double recover(String root, JSONObject parameters, int count) throws Exception {
        long begin = System.nanoTime();
        OpenStore opened = new OpenStore(root, parameters);
        try {
            opened.start();
            while (opened.store.dispatchBehindBytes() > 0) {
                Thread.onSpinWait();
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            long queued = 0;
            for (int queue = 0; queue < QUEUES; queue++) {
                queued += opened.store.getMaxOffsetInQueue(TOPIC, queue);
            }
            if (queued != count) {
                throw new IllegalStateException("recovered " + queued + " of " + count);
            }
            return seconds;
        } finally {
            opened.close();
        }
    }
}
