package mqstore.differential;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Producers, consumers and the administrator's client, each as its library gives it. */
final class Clients implements AutoCloseable {
    private static final int POLL_MS = 200;
    private static final long SILENCE_NS = 5_000_000_000L;

    private final String nameServer;
    private final String broker;
    private DefaultMQAdminExt admin;
    private TransactionMQProducer producer;

    Clients(String nameServer, String broker) {
        this.nameServer = nameServer;
        this.broker = broker;
    }

    /** Sends each line; {@code op: create-topic} makes a topic, {@code op: set-broker} changes the broker. */
    void produce(List<JSONObject> lines, Consumer<JSONObject> rows) throws Exception {
        for (JSONObject line : lines) {
            if ("create-topic".equals(line.getString("op"))) {
                rows.accept(createTopic(line));
            } else if ("set-broker".equals(line.getString("op"))) {
                Properties changes = new Properties();
                line.getJSONObject("config").forEach((name, value) -> changes.setProperty(name, String.valueOf(value)));
                admin().updateBrokerConfig(broker, changes);
            } else if ("lock".equals(line.getString("op"))) {
                lock(line.getString("group"), line.getString("topic"));
            } else {
                rows.accept(send(line));
            }
        }
    }

    /** Takes a lock of a queue, as each consumer does that takes messages in order. */
    private void lock(String group, String topic) throws Exception {
        LockBatchRequestBody body = new LockBatchRequestBody();
        body.setConsumerGroup(group);
        body.setClientId("differential");
        body.getMqSet().add(producer().fetchPublishMessageQueues(topic).get(0));
        producer().getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl().lockBatchMQ(broker, body, 3_000);
    }

    private JSONObject createTopic(JSONObject line) throws Exception {
        int queues = line.getIntValue("queues");
        TopicConfig topic = new TopicConfig(line.getString("topic"), queues, queues);
        JSONObject attributes = line.getJSONObject("attributes");
        if (attributes != null) {
            // A plus sign says that the attribute is to be added.
            Map<String, String> added = new HashMap<>();
            attributes.forEach((name, value) -> added.put("+" + name, String.valueOf(value)));
            topic.setAttributes(added);
        }
        admin().createAndUpdateTopicConfig(broker, topic);
        JSONObject row = new JSONObject();
        row.put("created", topic.getTopicName());
        return row;
    }

    private JSONObject send(JSONObject line) throws Exception {
        String topic = line.getString("topic");
        SendResult result;
        String compression = line.getString("compression");
        if (compression != null) {
            producer().setCompressType(CompressionType.valueOf(compression));
        }
        // A client compresses what is at least so long.
        producer().setCompressMsgBodyOverHowmuch(compression == null ? Integer.MAX_VALUE : 0);
        if (line.containsKey("transaction")) {
            result = producer().sendMessageInTransaction(message(topic, line), line.getString("transaction"));
        } else {
            MessageQueue queue = queue(topic, line.getIntValue("queueId"));
            JSONArray batch = line.getJSONArray("batch");
            if (batch == null) {
                result = producer().send(message(topic, line), queue);
            } else {
                Collection<Message> items = new ArrayList<>();
                for (int i = 0; i < batch.size(); i++) {
                    items.add(message(topic, batch.getJSONObject(i)));
                }
                result = producer().send(items, queue);
            }
        }
        JSONObject row = new JSONObject();
        row.put("status", result.getSendStatus().name());
        row.put("uniqKey", result.getMsgId());
        row.put("offsetMsgId", result.getOffsetMsgId());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("queueOffset", result.getQueueOffset());
        return row;
    }

    private MessageQueue queue(String topic, int queueId) throws Exception {
        for (MessageQueue queue : producer().fetchPublishMessageQueues(topic)) {
            if (queue.getQueueId() == queueId) {
                return queue;
            }
        }
        throw new IllegalArgumentException("no queue " + queueId + " of " + topic);
    }

    private static Message message(String topic, JSONObject line) {
        Message message = new Message(topic, Script.body(line));
        message.setFlag(line.getIntValue("flag"));
        if (line.getString("tags") != null) {
            message.setTags(line.getString("tags"));
        }
        JSONArray keys = line.getJSONArray("keys");
        if (keys != null) {
            message.setKeys(keys.toList(String.class));
        }
        JSONObject own = line.getJSONObject("properties");
        if (own != null) {
            own.forEach((name, value) -> message.putUserProperty(name, String.valueOf(value)));
        }
        String lightQueues = line.getString("multiDispatch");
        if (lightQueues != null) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, lightQueues);
        }
        if (line.containsKey("delayLevel")) {
            message.setDelayTimeLevel(line.getIntValue("delayLevel"));
        }
        if (line.containsKey("delayMs")) {
            message.setDelayTimeMs(line.getLongValue("delayMs"));
        }
        if (line.containsKey("deliverMs")) {
            message.setDeliverTimeMs(line.getLongValue("deliverMs"));
        }
        return message;
    }

    /** Takes everything from the first to the last offset of every queue of the topics, and ends by itself. */
    void pull(JSONObject command, Consumer<JSONObject> rows) throws Exception {
        long deadline = deadline(command);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(command.getString("group") + System.nanoTime());
        consumer.setAutoCommit(false);
        consumer.start();
        try {
            Map<MessageQueue, Long> next = new HashMap<>();
            Map<MessageQueue, Long> ends = new HashMap<>();
            for (Object topic : command.getJSONArray("topics")) {
                for (MessageQueue queue : consumer.fetchMessageQueues(String.valueOf(topic))) {
                    long begin = admin().minOffset(queue);
                    long end = admin().maxOffset(queue);
                    if (end > begin) {
                        next.put(queue, begin);
                        ends.put(queue, end);
                    }
                }
            }
            if (command.getString("tags") != null) {
                for (Object topic : command.getJSONArray("topics")) {
                    consumer.setSubExpressionForAssign(String.valueOf(topic), command.getString("tags"));
                }
            }
            consumer.assign(ends.keySet());
            for (MessageQueue queue : ends.keySet()) {
                consumer.seek(queue, next.get(queue));
            }
            long expected = command.getLongValue("count", Long.MAX_VALUE);
            long taken = 0;
            boolean isWhole = command.getString("tags") == null;
            long came = System.nanoTime();
            while (taken < expected && !ends.equals(next)) {
                List<MessageExt> polled = consumer.poll(POLL_MS);
                if (!polled.isEmpty()) {
                    came = System.nanoTime();
                } else if (isWhole && System.nanoTime() - came > SILENCE_NS) {
                    // A seek beside the first pull may have ended the pulls of a queue.
                    for (MessageQueue queue : ends.keySet()) {
                        consumer.seek(queue, next.get(queue));
                    }
                    came = System.nanoTime();
                }
                for (MessageExt message : polled) {
                    MessageQueue queue = new MessageQueue(message.getTopic(), message.getBrokerName(),
                        message.getQueueId());
                    long place = message.getQueueOffset();
                    if (isWhole && place != next.get(queue)) {
                        // The consumer pulls from the moment it is assigned a queue: a seek that comes between
                        // loses what is on its way.
                        if (place > next.get(queue)) {
                            consumer.seek(queue, next.get(queue));
                        }
                        continue;
                    }
                    rows.accept(consumed(message));
                    taken++;
                    next.merge(queue, place + 1, Math::max);
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + taken + " messages came, reached " + next
                        + " of " + ends);
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** Takes what one queue holds, which no name server need know of: a light queue ({@code queue}) of a topic. */
    void light(JSONObject command, Consumer<JSONObject> rows) throws Exception {
        long deadline = deadline(command);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(command.getString("group") + System.nanoTime());
        consumer.start();
        try {
            String topic = String.valueOf(command.getJSONArray("topics").get(0));
            MessageQueue known = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
            // The way to the broker is learnt by pulling from a queue that the name server knows.
            consumer.pull(known, "*", 0, 1);
            MessageQueue queue = new MessageQueue(command.getString("queue"), known.getBrokerName(), 0);
            long expected = command.getLongValue("count");
            long offset = command.getLongValue("offset");
            for (long taken = 0; taken < expected;) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                offset = result.getNextBeginOffset();
                for (MessageExt message : found(result)) {
                    rows.accept(consumed(message));
                    taken++;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + taken + " of " + expected + " messages came");
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    private static List<MessageExt> found(PullResult result) {
        return result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList();
    }

    /**
     * Subscribes and takes {@code count} messages as the broker hands them out; with {@code fail} it gives each back at
     * each try, at most {@code maxReconsumeTimes} times, which by default makes it a dead letter at once.
     */
    void push(JSONObject command, Consumer<JSONObject> rows) throws Exception {
        long deadline = deadline(command);
        LinkedBlockingQueue<MessageExt> arrived = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(command.getString("group") + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        boolean fail = command.getBooleanValue("fail");
        if (fail) {
            consumer.setMaxReconsumeTimes(command.getIntValue("maxReconsumeTimes", 0));
        }
        String tags = command.getString("tags");
        for (Object topic : command.getJSONArray("topics")) {
            consumer.subscribe(String.valueOf(topic), tags == null ? "*" : tags);
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            arrived.addAll(messages);
            return fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            long expected = command.getLongValue("count");
            Map<MessageQueue, Long> reached = new HashMap<>();
            for (long taken = 0; taken < expected; taken++) {
                MessageExt message = arrived.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                if (message == null) {
                    throw new IllegalStateException("only " + taken + " of " + expected + " messages came");
                }
                rows.accept(consumed(message));
                // The client gives a retry the topic that it comes from.
                boolean isRetry = message.getProperty(MessageConst.PROPERTY_RETRY_TOPIC) != null;
                MessageQueue queue = new MessageQueue(
                    isRetry ? MixAll.getRetryTopic(consumer.getConsumerGroup()) : message.getTopic(),
                    message.getBrokerName(), message.getQueueId());
                reached.merge(queue, message.getQueueOffset() + 1, Math::max);
            }
            awaitCommitted(consumer, reached, deadline);
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * A client commits behind the listener's back and one way: only the broker knows when it has the offsets. Its timer
     * first commits after ten seconds, so it is told to.
     */
    private void awaitCommitted(DefaultMQPushConsumer consumer, Map<MessageQueue, Long> reached, long deadline)
        throws Exception {
        while (true) {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            Map<MessageQueue, OffsetWrapper> held =
                admin().examineConsumeStats(consumer.getConsumerGroup()).getOffsetTable();
            if (reached.entrySet().stream().allMatch(queue -> held.containsKey(queue.getKey())
                && held.get(queue.getKey()).getConsumerOffset() >= queue.getValue())) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the broker holds " + held + ", the consumer reached " + reached);
            }
            TimeUnit.MILLISECONDS.sleep(POLL_MS / 4);
        }
    }

    /** By unique key or message id ({@code messageId}), or by key of a topic ({@code topic}, {@code key}). */
    void view(JSONObject command, Consumer<JSONObject> rows) throws Exception {
        String topic = command.getString("topic");
        if (command.containsKey("messageId")) {
            rows.accept(consumed(admin().viewMessage(topic, command.getString("messageId"))));
            return;
        }
        QueryResult result = admin().queryMessage(topic, command.getString("key"),
            command.getIntValue("max", 64), 0, Long.MAX_VALUE);
        for (MessageExt message : result.getMessageList()) {
            rows.accept(consumed(message));
        }
    }

    /** Asks the broker to delete expired files, as {@code mqadmin deleteExpiredCommitLog} does. */
    void deleteExpired() throws Exception {
        if (!admin().deleteExpiredCommitLogByAddr(broker)) {
            throw new IllegalStateException("the broker did not take the command");
        }
    }

    private static JSONObject consumed(MessageExt message) {
        JSONObject row = new JSONObject();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("phyOffset", message.getCommitLogOffset());
        row.put("storeSize", message.getStoreSize());
        row.put("uniqKey", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        row.put("offsetMsgId", message instanceof MessageClientExt client ? client.getOffsetMsgId()
            : message.getMsgId());
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("flag", message.getFlag());
        row.put("sysFlag", message.getSysFlag());
        row.put("bodyCrc", message.getBodyCRC());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("bornHost", Dump.host(message.getBornHost()));
        row.put("storeHost", Dump.host(message.getStoreHost()));
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        row.put("body", Dump.base64(message.getBody()));
        row.put("properties", new TreeMap<>(message.getProperties()));
        return row;
    }

    private static long deadline(JSONObject command) {
        return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(command.getLongValue("timeoutMs", 60_000));
    }

    private DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            admin = new DefaultMQAdminExt();
            admin.setNamesrvAddr(nameServer);
            admin.setInstanceName("admin" + System.nanoTime());
            admin.start();
        }
        return admin;
    }

    private TransactionMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new TransactionMQProducer("differential-producer");
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("producer" + System.nanoTime());
            producer.setTransactionListener(new AsTold());
            producer.start();
        }
        return producer;
    }

    @Override
    public void close() {
        if (producer != null) {
            producer.shutdown();
        }
        if (admin != null) {
            admin.shutdown();
        }
    }

    /** Ends each transaction as its line says, at once; the broker never has to ask. */
    private static final class AsTold implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object told) {
            return switch ((String) told) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                case "unknown" -> LocalTransactionState.UNKNOW;
                default -> throw new IllegalArgumentException("transaction " + told);
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }
}
