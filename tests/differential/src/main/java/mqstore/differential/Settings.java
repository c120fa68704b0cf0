package mqstore.differential;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** From a case's parameters to RocketMQ's own settings. */
final class Settings {
    private Settings() {
    }

    /**
     * Settings of a store: {@code storeConfig} of the parameters over the defaults.
     *
     * @param root the store's directory
     * @param parameters {@code {"storeConfig": {name: value}}}, may be null
     */
    static MessageStoreConfig store(String root, JSONObject parameters) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + File.separator + "commitlog");
        // A machine with little room left is no reason to delete or refuse anything here.
        config.setCleanFileForciblyEnable(false);
        config.setFileReservedTime(1_000_000);
        config.setHaListenPort(0);
        MixAll.properties2Object(properties(parameters, "storeConfig"), config);
        return config;
    }

    /** The named object of the parameters as properties, empty where there is none. */
    static Properties properties(JSONObject parameters, String name) {
        Properties properties = new Properties();
        JSONObject values = parameters == null ? null : parameters.getJSONObject(name);
        if (values != null) {
            values.forEach((key, value) -> properties.setProperty(key, String.valueOf(value)));
        }
        return properties;
    }

    /**
     * Topics that the store has to know: those of {@code config/topics.json}, where a broker left one, and
     * those of {@code batchTopics}, whose queues hold whole batches.
     */
    static ConcurrentMap<String, TopicConfig> topics(String root, JSONObject parameters) throws IOException {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        File saved = new File(root, "config/topics.json");
        if (saved.isFile()) {
            TopicConfigSerializeWrapper wrapper = null;
            try {
                wrapper = RemotingSerializable.fromJson(
                    Files.readString(saved.toPath()), TopicConfigSerializeWrapper.class);
            } catch (RuntimeException e) {
                // As ConfigManager#load: the broker starts without a table that it cannot read.
            }
            if (wrapper != null && wrapper.getTopicConfigTable() != null) {
                topics.putAll(wrapper.getTopicConfigTable());
            }
        }
        JSONArray batch = parameters == null ? null : parameters.getJSONArray("batchTopics");
        if (batch != null) {
            for (Object name : batch) {
                TopicConfig topic = new TopicConfig(String.valueOf(name));
                topic.setAttributes(Map.of("queue.type", CQType.BatchCQ.toString()));
                topics.put(topic.getTopicName(), topic);
            }
        }
        return topics;
    }
}
