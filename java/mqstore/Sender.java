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
 * <p>A frame is its length (4 bytes, big-endian), a kind (1 byte) and a body; a text is its length and UTF-8; a topic
 * of messages is the last of its frame, and has no length. The first frame has the settings, by name: secrets stand in
 * no argument and no environment. RocketMQ is called by reflection, so that one jar, compiled without it, serves
 * clients from 4.9 on.
 */
public final class Sender {
    private static final int MOST_FRAME_BYTES = 192 << 20;
    private static final int MOST_ANSWER_CHARS = 2_000;
    private static final int LONGEST_PAUSE_MS = 5_000;
    private static final int ANY_QUEUE = -1;
    private static final int PERM_WRITE = 2;
    private static final long PROOF_NS = 100_000_000;
    private static final int LANES = 48;
    /** Where a message has its mark, its flag, the length of its body, and the body. */
    private static final int MARK_AT = 4;
    private static final int FLAG_AT = 12;
    private static final int BODY_LENGTH_AT = 16;
    private static final int BODY_AT = 20;
    private static final String UNIQUE_KEY = "UNIQ_KEY\1";
    private static final int MOST_KEY_BYTES = 96;

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
    private final Map<Integer, Way> ways = new HashMap<>();
    private final List<ExecutorService> lanes = new ArrayList<>();
    private final Map<String, List<Object>> queues = new ConcurrentHashMap<>();
    private final Map<String, Set<Object>> seen = new ConcurrentHashMap<>();
    private final Map<String, Long> proofs = new ConcurrentHashMap<>();
    private final AtomicInteger turn = new AtomicInteger();
    private volatile boolean stopped;

    /** Where messages go. */
    private static final class Way {
        private int queue;
        private int lane;
        private String topic;
    }

    /** Messages of one queue that go together, one behind the other as in {@code MessageDecoder.encodeMessage}. */
    private static final class Request {
        private final Way way;
        private final long[] numbers;
        private final byte[] messages;

        Request(Way way, long[] numbers, byte[] messages) {
            this.way = way;
            this.numbers = numbers;
            this.messages = messages;
        }

        /** One request for each message. */
        List<Request> split() {
            List<Request> all = new ArrayList<>();
            ByteBuffer left = ByteBuffer.wrap(messages);
            for (long number : numbers) {
                byte[] message = bytes(left, left.getInt(left.position()));
                all.add(new Request(way, new long[] {number}, message));
            }
            return all;
        }
    }

    private Sender(Map<String, String> settings, DataOutputStream out) throws Exception {
        this.settings = settings;
        this.out = out;
        timeoutMs = Integer.parseInt(settings.get("timeout.ms"));
        tries = Integer.parseInt(settings.get("tries"));
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
                    start(request(body));
                    break;
                case 'N':
                    start(keyed(request(body)));
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
                    // The end of a Java machine takes a third of a second.
                    write(out, frame('E'));
                    return;
            }
        }
    }

    private void start(Request request) {
        lanes.get(request.way.lane % lanes.size()).execute(() -> {
            try {
                if (!stopped) {
                    deliver(request);
                }
            } catch (InterruptedException | IOException gone) {
                stopped = true;
            } catch (Throwable error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(3);
            }
        });
    }

    private Way way(ByteBuffer body) {
        Way way = new Way();
        way.queue = body.getInt();
        way.lane = body.getInt();
        way.topic = text(body, body.remaining());
        return way;
    }

    private Request request(ByteBuffer body) {
        Way way = ways.get(body.getInt());
        long[] numbers = new long[body.getInt()];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = body.getLong();
        }
        return new Request(way, numbers, bytes(body, body.remaining()));
    }

    /** Gives a unique key of the client to each message that is marked for it, where its magic number would be. */
    private Request keyed(Request request) throws ReflectiveOperationException {
        ByteBuffer from = ByteBuffer.wrap(request.messages);
        ByteBuffer keyed = ByteBuffer.allocate(request.messages.length + MOST_KEY_BYTES * request.numbers.length);
        while (from.hasRemaining()) {
            int at = keyed.position();
            boolean isMarked = from.getInt(from.position() + MARK_AT) != 0;
            int length = from.getInt(from.position());
            keyed.put(request.messages, from.position(), length);
            from.position(from.position() + length);
            if (isMarked) {
                byte[] key = (UNIQUE_KEY + newUniqueKey.invoke(null) + "\2").getBytes(StandardCharsets.UTF_8);
                int propertiesAt = at + BODY_AT + keyed.getInt(at + BODY_LENGTH_AT);
                keyed.put(key).putInt(at, length + key.length).putInt(at + MARK_AT, 0);
                keyed.putShort(propertiesAt, (short) (keyed.getShort(propertiesAt) + key.length));
            }
        }
        return new Request(request.way, request.numbers, Arrays.copyOf(keyed.array(), keyed.position()));
    }

    private Object message(Request request) throws ReflectiveOperationException {
        ByteBuffer all = ByteBuffer.wrap(request.messages, BODY_AT, request.messages.length - BODY_AT);
        Object message = newMessage.newInstance(request.way.topic, bytes(all, all.getInt(BODY_LENGTH_AT)));
        // What one message has may be too long for this length.
        all.getShort();
        setProperties.invoke(null, message, readProperties.invoke(null, text(all, all.remaining())));
        setFlag.invoke(message, all.getInt(FLAG_AT));
        return message;
    }

    private void deliver(Request request) throws InterruptedException, IOException {
        int done = 0;
        while (true) {
            Failure failure;
            try {
                done++;
                sent(request, attempt(request));
                return;
            } catch (Failure caught) {
                failure = caught;
            }
            if (!stopped && failure.mayPass() && done < tries) {
                Thread.sleep(Math.min(100L << Math.min(done - 1, 10), LONGEST_PAUSE_MS));
            } else if (request.numbers.length > 1 && !failure.mayPass()) {
                // Each message gets its own answer.
                for (Request one : request.split()) {
                    if (!stopped) {
                        deliver(one);
                    }
                }
                return;
            } else {
                // Later messages of its queue must not overtake it.
                if (ordered && !failure.isOfOne()) {
                    stopped = true;
                }
                for (long number : request.numbers) {
                    failed(number, failure, done);
                }
                return;
            }
        }
    }

    private Object attempt(Request request) throws Failure, InterruptedException {
        Way way = request.way;
        Object queue = queue(way);
        try {
            if (request.numbers.length == 1) {
                Object message = message(request);
                return isProven(way.topic) ? send.invoke(producer, message, queue, (long) timeoutMs)
                    : proven(way, message, queue);
            }
            // The client would read and write the properties of each message again.
            Object any = newMessage.newInstance(way.topic, request.messages);
            Object whole = together.invoke(null, Collections.singletonList(any));
            setBody.invoke(whole, (Object) request.messages);
            // A broker gives the properties of a batch, such as a unique key, to each of its messages.
            setProperties.invoke(null, whole, new HashMap<String, String>());
            return send.invoke(producer, whole, queue, (long) timeoutMs);
        } catch (ReflectiveOperationException | RuntimeException error) {
            Failure failure = Failure.of(error);
            // Messages in order wait for their queue, and take no other.
            if (!ordered && (!failure.kind.equals("MQBrokerException") || failure.code == Failure.NO_TOPIC)) {
                queues.remove(way.topic);
            }
            throw failure;
        }
    }

    private boolean isProven(String topic) {
        Long proof = proofs.get(topic);
        return !topic.startsWith("%RETRY%") || proof != null && System.nanoTime() - proof < PROOF_NS;
    }

    /** Sends into a retry topic alone, and reads where it went: a group that consumes in order takes no retries. */
    private synchronized Object proven(Way way, Object message, Object queue)
        throws Failure, InterruptedException, ReflectiveOperationException {
        if (stopped) {
            throw new InterruptedException();
        }
        Object result = send.invoke(producer, message, queue, (long) timeoutMs);
        if (isProven(way.topic)) {
            return result;
        }
        String topic = way.topic;
        try {
            Object stored = call(producer, "viewMessage", way.topic, call(result, "getOffsetMsgId"));
            topic = String.valueOf(call(stored, "getTopic"));
        } catch (ReflectiveOperationException unknown) {
            // This account may write, and not read.
        }
        if (topic.startsWith("%DLQ%")) {
            stopped = true;
            throw new Failure(Failure.DEAD_LETTER, "DeadLetter", "the broker put it into " + topic
                + ", since the group consumes in order or takes no retries; send to the topic (--origin-topic)");
        }
        proofs.put(way.topic, System.nanoTime());
        return result;
    }

    /** The queue that messages go to; a topic that is not there is never made. */
    private Object queue(Way way) throws Failure {
        List<Object> known = queues.get(way.topic);
        List<Object> same = same(way, known == null ? Collections.emptyList() : known);
        if (same.isEmpty() && (known == null || !ordered)) {
            Set<Object> all = seen.computeIfAbsent(way.topic, topic -> ConcurrentHashMap.newKeySet());
            try {
                known = published(way.topic);
                queues.put(way.topic, known);
                all.addAll(known);
                same = same(way, known);
            } catch (Failure failure) {
                if (same(way, all).isEmpty()) {
                    throw failure;
                }
            }
            // The broker of a queue that was there is away: it may come back.
            same = same.isEmpty() ? same(way, all) : same;
        }
        if (same.isEmpty()) {
            throw new Failure(Failure.NO_QUEUE, "NoQueue", way.topic + " has " + known.size()
                + " queues, none is " + way.queue);
        }
        boolean inTurn = way.queue == ANY_QUEUE && !ordered;
        return same.get(Math.floorMod(inTurn ? turn.getAndIncrement() : way.lane, same.size()));
    }

    private List<Object> same(Way way, Collection<Object> known) throws Failure {
        List<Object> same = new ArrayList<>();
        try {
            for (Object queue : known) {
                if (way.queue == ANY_QUEUE || (Integer) queueId.invoke(queue) == way.queue) {
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

    private void sent(Request request, Object result) throws IOException {
        String status = "SEND_OK";
        try {
            status = String.valueOf(call(result, "getSendStatus"));
        } catch (ReflectiveOperationException unknown) {
            // It was sent all the same.
        }
        ByteArrayOutputStream body = frame('S', status);
        DataOutputStream data = new DataOutputStream(body);
        for (long number : request.numbers) {
            data.writeLong(number);
        }
        write(out, body);
    }

    private void failed(long number, Failure failure, int done) throws IOException {
        ByteArrayOutputStream body = frame('F', failure.kind, shortened(failure.getMessage()));
        DataOutputStream data = new DataOutputStream(body);
        data.writeLong(number);
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
