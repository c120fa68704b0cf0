package mqstore;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Sends messages with RocketMQ's own client: frames come by standard input, answers leave by standard output.
 *
 * <p>A frame is its length (4 bytes, big-endian), a kind (1 byte) and a body; a text is its length and UTF-8. The first
 * frame has the settings, by name: secrets stand in no argument and no environment. RocketMQ is called by reflection,
 * so that one jar, compiled without it, serves clients from 4.9 on.
 */
public final class Sender {
    private static final int MOST_FRAME_BYTES = 192 << 20;
    private static final int MOST_BATCH_BYTES = 512 << 10;
    /** A broker adds properties of its own to the 32,767 bytes that a record can hold. */
    private static final int MOST_PROPERTY_BYTES = 32_500;
    private static final int MOST_ANSWER_CHARS = 2_000;
    private static final int LONGEST_PAUSE_MS = 5_000;
    private static final int ANY_QUEUE = -1;
    private static final int PERM_WRITE = 2;
    private static final long PROOF_NS = 100_000_000;
    private static final int LANES = 48;
    private static final String ORIGIN = "MQSTORE_ORIGIN";
    private static final String UNIQUE_KEY = "UNIQ_KEY";
    /** Messages that wait, or go to several queues, are requests of their own. */
    private static final Set<String> ALONE = new HashSet<>(Arrays.asList("INNER_MULTI_DISPATCH", "DELAY",
        "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"));

    private final DataOutputStream out;
    private final Map<String, String> settings;
    private final Object producer;
    private final Constructor<?> newMessage;
    private final Method setFlag;
    private final Method setProperties;
    private final Method readProperties;
    private final Method send;
    private final Method newUniqueKey;
    private final Method together;
    private final Method setBody;
    private final Method queueId;
    private final boolean ordered;
    private final int timeoutMs;
    private final int tries;
    private final int batch;
    private final Set<String> dropped = new HashSet<>();
    private final Map<Integer, Way> ways = new HashMap<>();
    private final Map<String, Request> held = new LinkedHashMap<>();
    private final List<ExecutorService> lanes = new ArrayList<>();
    private final Map<String, List<Object>> queues = new ConcurrentHashMap<>();
    private final Map<String, Set<Object>> seen = new ConcurrentHashMap<>();
    private final Map<String, Long> proofs = new ConcurrentHashMap<>();
    private final AtomicInteger turn = new AtomicInteger();
    private volatile boolean stopped;

    /** The part that many messages share. */
    private static final class Way {
        private int queue;
        private int lane;
        private String topic;
        private String request;
        private byte[] added;
        private Map<String, String> properties;
    }

    /** Messages of one queue that go together. */
    private static final class Request extends ArrayList<Item> {
        private int bytes;
    }

    /** A message to be sent. */
    private static final class Item {
        private long sequence;
        private Way way;
        private int flag;
        private byte[] properties;
        private byte[] body;
        private boolean batchable;

        /** As in a request of several: {@code MessageDecoder.encodeMessage}. */
        private int bytes() {
            return 22 + body.length + properties.length;
        }

        private void put(ByteBuffer out) {
            out.putInt(bytes()).putInt(0).putInt(0).putInt(flag).putInt(body.length).put(body)
                .putShort((short) properties.length).put(properties);
        }
    }

    private Sender(Map<String, String> settings, DataOutputStream out) throws Exception {
        this.settings = settings;
        this.out = out;
        timeoutMs = Integer.parseInt(settings.get("timeout.ms"));
        tries = Integer.parseInt(settings.get("tries"));
        batch = Integer.parseInt(settings.get("batch"));
        Collections.addAll(dropped, settings.get("drop").split("\1"));
        Class<?> message = type("common.message.Message");
        Class<?> queue = type("common.message.MessageQueue");
        newMessage = message.getConstructor(String.class, byte[].class);
        setFlag = message.getMethod("setFlag", int.class);
        setProperties = type("common.message.MessageAccessor").getMethod("setProperties", message, Map.class);
        readProperties = type("common.message.MessageDecoder").getMethod("string2messageProperties", String.class);
        producer = started();
        send = producer.getClass().getMethod("send", message, queue, long.class);
        Class<?> batches = type("common.message.MessageBatch");
        newUniqueKey = type("common.message.MessageClientIDSetter").getMethod("createUniqID");
        together = batches.getMethod("generateFromList", Collection.class);
        setBody = message.getMethod("setBody", byte[].class);
        queueId = queue.getMethod("getQueueId");
        ordered = Boolean.parseBoolean(settings.get("ordered"));
        // In order, each queue has a thread of its own.
        for (int i = 0; i < (ordered ? LANES : 1); i++) {
            lanes.add(Executors.newFixedThreadPool(ordered ? 1 : LANES));
        }
    }

    public static void main(String[] arguments) {
        DataOutputStream out = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        // Log lines of RocketMQ's client must not fall between the answers.
        System.setOut(System.err);
        int code = 1;
        Map<String, String> settings = new HashMap<>();
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 18))) {
            ByteBuffer first = frame(in);
            first.get();
            while (first.hasRemaining()) {
                settings.put(text(first), text(first));
            }
            settings.forEach((name, value) -> {
                if (name.startsWith("property.")) {
                    System.setProperty(name.substring(9), value);
                }
            });
            Sender sender = new Sender(settings, out);
            write(out, frame('R'));
            sender.read(in);
            code = 0;
        } catch (EOFException gone) {
            // The other side was killed: nothing more is sent, and nobody reads an answer.
        } catch (Throwable error) {
            Failure failure = Failure.of(error);
            try {
                write(out, frame('X', failure.kind + ": " + failure.getMessage()));
            } catch (IOException gone) {
                code = 2;
            }
        }
        remove(new File(settings.getOrDefault("folder", "")));
        Runtime.getRuntime().halt(code);
    }

    private static void remove(File file) {
        File[] below = file.listFiles();
        if (below != null) {
            for (File one : below) {
                remove(one);
            }
        }
        file.delete();
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
        return Class.forName("org.apache.rocketmq." + name);
    }

    private static Object call(Object target, String name, Object... arguments) throws ReflectiveOperationException {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                try {
                    return method.invoke(target, arguments);
                } catch (IllegalArgumentException other) {
                    // An overload for other types.
                }
            }
        }
        throw new NoSuchMethodException(target.getClass().getName() + "." + name);
    }

    private Object started() throws Exception {
        Object hook = null;
        if (!settings.get("access.key").isEmpty()) {
            Class<?> credentials = type("acl.common.SessionCredentials");
            hook = type("acl.common.AclClientRPCHook").getConstructor(credentials).newInstance(credentials
                .getConstructor(String.class, String.class)
                .newInstance(settings.get("access.key"), settings.get("secret.key")));
        }
        Object made = type("client.producer.DefaultMQProducer")
            .getConstructor(String.class, type("remoting.RPCHook")).newInstance("MQSTORE_REPLAY", hook);
        call(made, "setNamesrvAddr", settings.get("name.servers"));
        call(made, "setInstanceName", "mqstore-" + System.nanoTime());
        call(made, "setRetryTimesWhenSendFailed", 0);
        call(made, "setMaxMessageSize", MOST_FRAME_BYTES);
        call(made, "setUseTLS", Boolean.parseBoolean(settings.get("tls")));
        call(made, "start");
        return made;
    }

    private void read(DataInputStream in) throws Exception {
        while (true) {
            ByteBuffer body = frame(in);
            switch (body.get()) {
                case 'W':
                    ways.put(body.getInt(), way(body));
                    break;
                case 'M':
                    hold(item(body));
                    break;
                case 'G':
                    held.values().forEach(this::start);
                    held.clear();
                    break;
                case 'T':
                    describe(text(body));
                    break;
                default:
                    // Messages on their way are answered, and the rest dropped.
                    stopped = true;
                    for (ExecutorService lane : lanes) {
                        lane.shutdown();
                        lane.awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
                    }
                    return;
            }
        }
    }

    /** Messages of one queue go together once a request is full, or the other side waits. */
    private void hold(Item item) {
        Request request = held.computeIfAbsent(item.way.request, none -> new Request());
        if (!request.isEmpty() && (!item.batchable || request.bytes + item.bytes() > MOST_BATCH_BYTES)) {
            start(request);
            request = new Request();
            held.put(item.way.request, request);
        }
        request.add(item);
        request.bytes += item.bytes();
        if (!item.batchable || request.size() == batch) {
            start(request);
            held.remove(item.way.request);
        }
    }

    private void start(List<Item> items) {
        lanes.get(items.get(0).way.lane % lanes.size()).execute(() -> {
            try {
                if (!stopped) {
                    deliver(items);
                }
            } catch (InterruptedException | IOException gone) {
                stopped = true;
            } catch (Throwable error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(3);
            }
        });
    }

    private Way way(ByteBuffer body) throws Exception {
        Way way = new Way();
        way.queue = body.getInt();
        way.lane = body.getInt();
        way.topic = text(body);
        way.request = way.lane + "/" + way.queue + "/" + way.topic;
        way.added = bytes(body, body.remaining());
        way.properties = properties(way.added);
        return way;
    }

    @SuppressWarnings("unchecked")
    private Map<String, String> properties(byte[] block) throws ReflectiveOperationException {
        return (Map<String, String>) readProperties.invoke(null, new String(block, StandardCharsets.UTF_8));
    }

    private Item item(ByteBuffer body) throws Exception {
        Item item = new Item();
        item.sequence = body.getLong();
        item.way = ways.get(body.getInt());
        byte[] origin = property(ORIGIN, settings.get("broker") + "/" + body.getLong());
        item.flag = body.getInt();
        byte[] stored = bytes(body, body.getInt());
        item.body = bytes(body, body.remaining());
        Map<String, String> added = item.way.properties;
        boolean fits = stored.length + item.way.added.length + origin.length <= MOST_PROPERTY_BYTES;
        boolean isAlone = !added.getOrDefault("WAIT", "true").equals("true")
            || !Collections.disjoint(added.keySet(), ALONE);
        boolean isKeyed = added.containsKey(UNIQUE_KEY);
        // One more byte, for a last property without its end.
        ByteBuffer kept = ByteBuffer.allocate(stored.length + 1 + item.way.added.length + origin.length);
        for (int from = 0, to; from < stored.length; from = to + 1) {
            to = find(stored, (byte) 2, from, stored.length);
            int split = find(stored, (byte) 1, from, to);
            // Clients and brokers know no empty name or value.
            if (split == from || split >= to - 1) {
                continue;
            }
            String name = new String(stored, from, split - from, StandardCharsets.UTF_8);
            if (!dropped.contains(name) && !added.containsKey(name) && !(fits && name.equals(ORIGIN))) {
                kept.put(stored, from, to - from).put((byte) 2);
                isAlone |= ALONE.contains(name);
                isKeyed |= name.equals(UNIQUE_KEY);
            }
        }
        kept.put(item.way.added).put(fits ? origin : new byte[0]);
        byte[] key = isKeyed ? new byte[0] : property(UNIQUE_KEY, (String) newUniqueKey.invoke(null));
        item.properties = Arrays.copyOf(kept.array(), kept.position() + key.length);
        System.arraycopy(key, 0, item.properties, kept.position(), key.length);
        // Of several messages a broker does not check the length of their properties with its own.
        item.batchable = batch > 1 && item.body.length > 0 && item.properties.length <= MOST_PROPERTY_BYTES && !isAlone
            && !item.way.topic.startsWith("%RETRY%");
        return item;
    }

    private static byte[] property(String name, String value) {
        return (name + "\1" + value + "\2").getBytes(StandardCharsets.UTF_8);
    }

    private static int find(byte[] block, byte wanted, int from, int to) {
        int at = from;
        while (at < to && block[at] != wanted) {
            at++;
        }
        return at;
    }

    private Object message(Item item) throws ReflectiveOperationException {
        Object message = newMessage.newInstance(item.way.topic, item.body);
        setProperties.invoke(null, message, properties(item.properties));
        setFlag.invoke(message, item.flag);
        return message;
    }

    private void deliver(List<Item> items) throws InterruptedException, IOException {
        int done = 0;
        while (true) {
            Failure failure;
            try {
                done++;
                sent(items, attempt(items));
                return;
            } catch (Failure caught) {
                failure = caught;
            }
            if (!stopped && failure.mayPass() && done < tries) {
                Thread.sleep(Math.min(100L << Math.min(done - 1, 10), LONGEST_PAUSE_MS));
            } else if (items.size() > 1 && !failure.mayPass()) {
                // Each message gets its own answer.
                for (Item item : items) {
                    if (!stopped) {
                        deliver(Collections.singletonList(item));
                    }
                }
                return;
            } else {
                // Later messages of its queue must not overtake it.
                if (ordered && !failure.isOfOne()) {
                    stopped = true;
                }
                for (Item item : items) {
                    failed(item, failure, done);
                }
                return;
            }
        }
    }

    private Object attempt(List<Item> items) throws Failure, InterruptedException {
        Item first = items.get(0);
        Object queue = queue(first);
        try {
            Object message = message(first);
            if (items.size() == 1) {
                return isProven(first.way.topic) ? send.invoke(producer, message, queue, (long) timeoutMs)
                    : proven(first, message, queue);
            }
            // The client would read and write the properties of each message again.
            Object whole = together.invoke(null, Collections.singletonList(message));
            ByteBuffer all = ByteBuffer.allocate(items.stream().mapToInt(Item::bytes).sum());
            items.forEach(item -> item.put(all));
            setBody.invoke(whole, (Object) all.array());
            // A broker gives the properties of a batch, such as a unique key, to each of its messages.
            setProperties.invoke(null, whole, new HashMap<String, String>());
            return send.invoke(producer, whole, queue, (long) timeoutMs);
        } catch (ReflectiveOperationException | RuntimeException error) {
            Failure failure = Failure.of(error);
            // Messages in order wait for their queue, and take no other.
            if (!ordered && (!failure.kind.equals("MQBrokerException") || failure.code == Failure.NO_TOPIC)) {
                queues.remove(first.way.topic);
            }
            throw failure;
        }
    }

    private boolean isProven(String topic) {
        Long proof = proofs.get(topic);
        return !topic.startsWith("%RETRY%") || proof != null && System.nanoTime() - proof < PROOF_NS;
    }

    /** Sends into a retry topic alone, and reads where it went: a group that consumes in order takes no retries. */
    private synchronized Object proven(Item item, Object message, Object queue)
        throws Failure, InterruptedException, ReflectiveOperationException {
        if (stopped) {
            throw new InterruptedException();
        }
        Object result = send.invoke(producer, message, queue, (long) timeoutMs);
        if (isProven(item.way.topic)) {
            return result;
        }
        String topic = item.way.topic;
        try {
            Object stored = call(producer, "viewMessage", item.way.topic, call(result, "getOffsetMsgId"));
            topic = String.valueOf(call(stored, "getTopic"));
        } catch (ReflectiveOperationException unknown) {
            // This account may write, and not read.
        }
        if (topic.startsWith("%DLQ%")) {
            stopped = true;
            throw new Failure(Failure.DEAD_LETTER, "DeadLetter", "the broker put it into " + topic
                + ", since the group consumes in order or takes no retries; send to the topic (--origin-topic)");
        }
        proofs.put(item.way.topic, System.nanoTime());
        return result;
    }

    /** The queue that an item goes to; a topic that is not there is never made. */
    private Object queue(Item item) throws Failure {
        List<Object> known = queues.get(item.way.topic);
        List<Object> same = same(item, known == null ? Collections.emptyList() : known);
        if (same.isEmpty() && (known == null || !ordered)) {
            Set<Object> all = seen.computeIfAbsent(item.way.topic, topic -> ConcurrentHashMap.newKeySet());
            try {
                known = published(item.way.topic);
                queues.put(item.way.topic, known);
                all.addAll(known);
                same = same(item, known);
            } catch (Failure failure) {
                if (same(item, all).isEmpty()) {
                    throw failure;
                }
            }
            // The broker of a queue that was there is away: it may come back.
            same = same.isEmpty() ? same(item, all) : same;
        }
        if (same.isEmpty()) {
            throw new Failure(Failure.NO_QUEUE, "NoQueue", item.way.topic + " has " + known.size()
                + " queues, none is " + item.way.queue);
        }
        boolean inTurn = item.way.queue == ANY_QUEUE && !ordered;
        return same.get(Math.floorMod(inTurn ? turn.getAndIncrement() : item.way.lane, same.size()));
    }

    private List<Object> same(Item item, Collection<Object> known) throws Failure {
        List<Object> same = new ArrayList<>();
        try {
            for (Object queue : known) {
                if (item.way.queue == ANY_QUEUE || (Integer) queueId.invoke(queue) == item.way.queue) {
                    same.add(queue);
                }
            }
        } catch (ReflectiveOperationException error) {
            throw Failure.of(error);
        }
        return same;
    }

    private Object client() throws ReflectiveOperationException {
        return call(call(producer, "getDefaultMQProducerImpl"), "getmQClientFactory");
    }

    /** The queues that can be written to, as the name server knows them now. */
    private List<Object> published(String topic) throws Failure {
        try {
            Object client = client();
            Object route = call(call(client, "getMQClientAPIImpl"), "getTopicRouteInfoFromNameServer", topic,
                (long) timeoutMs);
            Object info = client.getClass().getMethod("topicRouteData2TopicPublishInfo", String.class,
                route.getClass()).invoke(null, topic, route);
            List<Object> found = new ArrayList<>((Collection<?>) call(info, "getMessageQueueList"));
            int perm = 0;
            for (Object data : (Collection<?>) call(route, "getQueueDatas")) {
                perm |= (Integer) call(data, "getPerm");
            }
            if (found.isEmpty()) {
                throw (perm & PERM_WRITE) == 0 ? new Failure(Failure.NO_PERMISSION, "NoPermission", topic + " is read-only")
                    : new Failure(-1, "RemotingException", "no master of " + topic + " is there");
            }
            return found;
        } catch (ReflectiveOperationException error) {
            throw Failure.of(error);
        }
    }

    private void describe(String topic) throws IOException {
        Set<String> groups = new TreeSet<>();
        int count = 0;
        String error = "";
        try {
            List<Object> known = published(topic);
            Set<Object> numbers = new HashSet<>();
            Set<Object> brokers = new HashSet<>();
            for (Object queue : known) {
                numbers.add(queueId.invoke(queue));
                brokers.add(call(queue, "getBrokerName"));
            }
            count = numbers.size();
            Object client = client();
            call(client, "updateTopicRouteInfoFromNameServer", topic);
            for (Object broker : brokers) {
                Object address = call(client, "findBrokerAddressInPublish", broker);
                Object list = call(call(client, "getMQClientAPIImpl"), "queryTopicConsumeByWho", address, topic,
                    (long) timeoutMs);
                for (Object group : (Collection<?>) call(list, "getGroupList")) {
                    // Brokers of 5.3 name the topic itself where one of its consumers is connected.
                    if (!group.equals(topic) || isConnected(client, address, topic)) {
                        groups.add(String.valueOf(group));
                    }
                }
            }
        } catch (Failure failure) {
            error = failure.code == Failure.NO_TOPIC ? "" : failure.getMessage();
        } catch (ReflectiveOperationException failure) {
            error = Failure.of(failure).getMessage();
        }
        ByteArrayOutputStream body = frame('T', topic, shortened(error), String.join("\1", groups));
        new DataOutputStream(body).writeInt(count);
        write(out, body);
    }

    private boolean isConnected(Object client, Object address, String group) {
        try {
            Object found = call(call(client, "getMQClientAPIImpl"), "getConsumerIdListByGroup", address, group,
                (long) timeoutMs);
            return !((Collection<?>) found).isEmpty();
        } catch (ReflectiveOperationException none) {
            return false;
        }
    }

    private void sent(List<Item> items, Object result) throws IOException {
        String status = "SEND_OK";
        try {
            status = String.valueOf(call(result, "getSendStatus"));
        } catch (ReflectiveOperationException unknown) {
            // It was sent all the same.
        }
        ByteArrayOutputStream body = frame('S', status);
        DataOutputStream data = new DataOutputStream(body);
        for (Item item : items) {
            data.writeLong(item.sequence);
        }
        write(out, body);
    }

    private void failed(Item item, Failure failure, int done) throws IOException {
        ByteArrayOutputStream body = frame('F', failure.kind, shortened(failure.getMessage()));
        DataOutputStream data = new DataOutputStream(body);
        data.writeLong(item.sequence);
        data.writeInt(failure.code);
        data.writeInt(done);
        write(out, body);
    }

    private static String shortened(String text) {
        String whole = String.valueOf(text);
        return whole.length() <= MOST_ANSWER_CHARS ? whole : whole.substring(0, MOST_ANSWER_CHARS);
    }

    private static ByteArrayOutputStream frame(char kind, String... texts) throws IOException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        DataOutputStream data = new DataOutputStream(body);
        data.writeByte(kind);
        for (String text : texts) {
            byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
            data.writeInt(encoded.length);
            data.write(encoded);
        }
        return body;
    }

    private static void write(OutputStream out, ByteArrayOutputStream body) throws IOException {
        byte[] head = ByteBuffer.allocate(4).putInt(body.size()).array();
        ByteArrayOutputStream whole = new ByteArrayOutputStream(head.length + body.size());
        whole.write(head);
        body.writeTo(whole);
        synchronized (out) {
            whole.writeTo(out);
            out.flush();
        }
    }

    private static ByteBuffer frame(DataInputStream in) throws IOException {
        int length = in.readInt();
        if (length < 1 || length > MOST_FRAME_BYTES) {
            throw new IOException("a frame of " + length + " bytes");
        }
        byte[] body = new byte[length];
        in.readFully(body);
        return ByteBuffer.wrap(body);
    }

    private static String text(ByteBuffer body) {
        return text(body, body.getInt());
    }

    private static String text(ByteBuffer body, int length) {
        return new String(bytes(body, length), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(ByteBuffer body, int length) {
        byte[] found = new byte[length];
        body.get(found);
        return found;
    }
}
