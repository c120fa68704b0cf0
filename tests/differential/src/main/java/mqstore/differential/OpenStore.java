package mqstore.differential;

import com.alibaba.fastjson2.JSONObject;
import java.io.File;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** One store, opened by RocketMQ itself: loaded (which recovers), started, and closed again. */
final class OpenStore implements AutoCloseable {
    private static final long DISPATCH_DEADLINE_MS = 20_000;

    final MessageStoreConfig config;
    final DefaultMessageStore store;
    final boolean lastExitOk;
    final double loadMs;
    private final BrokerStatsManager statistics;
    private boolean started;

    /** Loads the store. {@link #start} is a step of its own, because loading alone already repairs. */
    OpenStore(String root, JSONObject parameters) throws Exception {
        config = Settings.store(root, parameters);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerIP1("127.0.0.1");
        MixAll.properties2Object(Settings.properties(parameters, "brokerConfig"), broker);
        statistics = new BrokerStatsManager("differential", true);
        MessageArrivingListener nobody =
            (topic, queueId, logicOffset, tagsCode, storeTime, bitMap, properties) -> { };
        var topics = Settings.topics(root, parameters);
        store = config.isEnableRocksDBStore()
            ? new RocksDBMessageStore(config, statistics, nobody, broker, topics)
            : new DefaultMessageStore(config, statistics, nobody, broker, topics);
        lastExitOk = !new File(root, "abort").exists();
        long begin = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("load of " + root + " failed");
        }
        loadMs = (System.nanoTime() - begin) / 1e6;
    }

    /** Loads, starts and waits until every record has reached queues and index. */
    static OpenStore ready(String root, JSONObject parameters) throws Exception {
        OpenStore opened = new OpenStore(root, parameters);
        opened.start();
        opened.awaitDispatch();
        return opened;
    }

    /** Takes the lock and starts the services; fails where somebody else holds the lock. */
    void start() throws Exception {
        store.start();
        started = true;
    }

    /** Waits until dispatch is level with the log; false when it is not within 20 seconds. */
    boolean awaitDispatch() throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(DISPATCH_DEADLINE_MS);
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            TimeUnit.MILLISECONDS.sleep(2);
        }
        return true;
    }

    /** Whether the store is that of a broker in controller mode. */
    boolean isReplicated() {
        return store.getBrokerConfig().isEnableControllerMode();
    }

    /** All queues by topic, then number. */
    List<ConsumeQueueInterface> queues() {
        List<ConsumeQueueInterface> queues = new ArrayList<>();
        store.getConsumeQueueTable().values().forEach(byNumber -> queues.addAll(byNumber.values()));
        queues.sort(Comparator.comparing(ConsumeQueueInterface::getTopic)
            .thenComparingInt(ConsumeQueueInterface::getQueueId));
        return queues;
    }

    /**
     * Stops the store the clean way. RocketMQ would first sleep for three seconds, to let others notice; the
     * interrupt takes that sleep away and nothing else.
     */
    @Override
    public void close() {
        if (started) {
            Thread.currentThread().interrupt();
        }
        store.shutdown();
        Thread.interrupted();
        statistics.shutdown();
    }
}
