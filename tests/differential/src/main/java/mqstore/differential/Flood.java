package mqstore.differential;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** The client alone: {@code count} messages of {@code bytes} from {@code threads}, {@code batch} to a request. */
final class Flood {
    private Flood() {
    }

    static double seconds(JSONObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("flood");
        producer.setNamesrvAddr(command.getString("to"));
        producer.setInstanceName("flood" + System.nanoTime());
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            // The first connection counts, as that of a replay does.
            long began = System.nanoTime();
            List<MessageQueue> queues = producer.fetchPublishMessageQueues(command.getString("topic"));
            AtomicInteger next = new AtomicInteger();
            AtomicReference<Exception> failed = new AtomicReference<>();
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < command.getIntValue("threads"); i++) {
                MessageQueue queue = queues.get(i % queues.size());
                Thread thread = new Thread(() -> {
                    try {
                        send(producer, queue, next, command);
                    } catch (Exception e) {
                        failed.set(e);
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            if (failed.get() != null) {
                throw failed.get();
            }
            return (System.nanoTime() - began) / 1e9;
        } finally {
            producer.shutdown();
        }
    }

    private static void send(DefaultMQProducer producer, MessageQueue queue, AtomicInteger next, JSONObject command)
        throws Exception {
        int batch = command.getIntValue("batch");
        int count = command.getIntValue("count");
        for (int from = next.getAndAdd(batch); from < count; from = next.getAndAdd(batch)) {
            List<Message> messages = new ArrayList<>();
            for (int i = from; i < Math.min(count, from + batch); i++) {
                byte[] body = new byte[command.getIntValue("bytes")];
                // As of a store: nothing that a compressor makes small.
                new Random(i).nextBytes(body);
                Message message = new Message(queue.getTopic(), "paid", "key-" + i, body);
                message.putUserProperty("origin", "broker-a/" + i);
                messages.add(message);
            }
            if (messages.size() == 1) {
                producer.send(messages.get(0), queue, 10_000);
            } else {
                producer.send(messages, queue, 10_000);
            }
        }
    }
}
